//! Commands and files in a container, as a page for the book.

use std::fmt::Write as _;

use super::report::Aim::{AtLeast, AtMost};
use super::report::Measure::{Beyond, Other, Ratio};
use super::report::{Report, Series, Target, number, ratio};

pub(super) fn page(report: &Report, machine: &str) -> String {
    let mut page = format!(
        "# Commands and files in a container: times\n\n\
         Written by `cargo xtask bench exec`. {machine}; {}.\n\n\
         Milliseconds, median and 99th percentile (of fewer than 100 calls: the slowest). All ways take turns in \
         each round. \"×\": how many times faster than the engine's own program in the same run. A program that is \
         to be run 1,000 times is run 50 times, and its mean counts. –: not measured.\n",
        report.versions()
    );
    if let Some(spawn) = report.spawn() {
        let (median, p99) = (number(spawn.median()), number(spawn.p99()));
        let _ = writeln!(page, "\nThe host starts a static `true` and sees it end in {median} ({p99}).");
    }
    for engine in &report.engines {
        calls(report, &mut page, &engine.name);
    }
    containers(report, &mut page);
    memory(report, &mut page);
    report.targets(&mut page, TARGETS);
    page
}

fn calls(report: &Report, page: &mut String, engine: &str) {
    let _ = writeln!(page, "\n## {engine}\n\n| | `{engine} exec` | socket | × | stream | × |");
    page.push_str("|---|--:|--:|--:|--:|--:|\n");
    let ways = ["socket", "stream"];
    for case in report.cases_of(&ways) {
        let own = report.of(&case.name, "engine", engine);
        let _ = write!(page, "| {} | {} |", case.label, cell(own));
        for way in ways {
            let link = report.of(&case.name, way, engine);
            let _ = write!(page, " {} | {} |", cell(link), times(ratio(own, link)));
        }
        page.push('\n');
    }
}

fn containers(report: &Report, page: &mut String) {
    page.push_str(
        "\n## Containers\n\n\
         The engine's own `run --detach` and `rm --force` (Podman: `--time=0`), and a process `coracle call` with \
         `create` without a directory of the host, and `destroy`.\n\n\
         | | the engine | `coracle`, with a guest | `coracle`, without |\n|---|--:|--:|--:|\n",
    );
    let made: Vec<_> = report.cases_of(&["guest", "plain"]).collect();
    report.rows(page, &made, &["engine", "guest", "plain"], cell);
}

fn memory(report: &Report, page: &mut String) {
    page.push_str(
        "\n## Memory of a guest\n\n\
         Resident, in MiB: on its first connection, after all calls above, and the most there ever was, a command \
         with a flood of output included.\n\n\
         | | idle | after | most | of the flood |\n|---|--:|--:|--:|--:|\n",
    );
    for it in &report.memory {
        let [idle, after, most] = [it.idle, it.after, it.most].map(|kib| number(kib as f64 / 1024.0));
        let flood = it.flood as f64 / f64::from(1 << 20);
        let _ = writeln!(page, "| {} | {idle} | {after} | {most} | {} |", it.engine, number(flood));
    }
}

fn in_spawns(report: &Report, way: &str, engine: &str) -> Option<f64> {
    ratio(report.of("true", way, engine), report.spawn())
}

fn p99(report: &Report, way: &str, engine: &str) -> Option<f64> {
    report.of("true", way, engine).map(Series::p99)
}

fn per_second(report: &Report, engine: &str) -> Option<f64> {
    report.of("at-once", "socket", engine).map(|it| 1e3 / it.median())
}

fn beyond_engine(report: &Report, engine: &str) -> Option<f64> {
    let (ours, own) = (report.of("create", "guest", engine)?, report.of("create", "engine", engine)?);
    Some(ours.median() - 1.3 * own.median())
}

fn memory_growth(report: &Report, engine: &str) -> Option<f64> {
    let memory = report.memory.iter().find(|it| it.engine == engine)?;
    Some(memory.most.saturating_sub(memory.idle) as f64 / 1024.0)
}

const TARGETS: &[Target] = &[
    Target(
        "`true` on a held link, socket: times faster than the engine",
        AtLeast(60.0),
        Ratio(("true", "engine"), ("true", "socket")),
    ),
    Target("the same in spawns on the host", AtMost(2.0), Other(|it, engine| in_spawns(it, "socket", engine))),
    Target("the same, 99th percentile, ms", AtMost(10.0), Other(|it, engine| p99(it, "socket", engine))),
    Target(
        "`true` on a held link, stream: times faster than the engine",
        AtLeast(40.0),
        Ratio(("true", "engine"), ("true", "stream")),
    ),
    Target("the same in spawns on the host", AtMost(3.0), Other(|it, engine| in_spawns(it, "stream", engine))),
    Target("the same, 99th percentile, ms", AtMost(10.0), Other(|it, engine| p99(it, "stream", engine))),
    Target(
        "a process `coracle exec`, socket: share of the engine's time",
        AtMost(0.25),
        Ratio(("one-shot", "socket"), ("one-shot", "engine")),
    ),
    Target(
        "a process `coracle exec`, stream: ms more than the engine",
        AtMost(25.0),
        Beyond(("one-shot", "stream"), ("one-shot", "engine")),
    ),
    Target("1,000 × `true` at once, socket: a second", AtLeast(1000.0), Other(per_second)),
    Target("make a container: ms more than 1.3 × the engine", AtMost(150.0), Other(beyond_engine)),
    Target("the same: ms more than without a guest", AtMost(40.0), Beyond(("create", "guest"), ("create", "plain"))),
    Target("remove it: share of the engine's time", AtMost(1.5), Ratio(("destroy", "guest"), ("destroy", "engine"))),
    Target("memory of a guest under a flood: MiB more than idle", AtMost(64.0), Other(memory_growth)),
];

fn cell(series: Option<&Series>) -> String {
    series.map_or("–".to_owned(), |it| format!("{} ({})", number(it.median()), number(it.p99())))
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("–".to_owned(), number)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::bench) fn report() -> Report {
        let ms = |it: &[u64]| it.iter().map(|it| it * 1_000_000).collect::<Vec<_>>();
        Report::read(&json!({
            "cases": [
                { "name": "true", "label": "`true`" },
                { "name": "one-shot", "label": "one & <all>" },
                { "name": "create", "label": "make" },
            ],
            "engines": [{ "name": "docker", "version": "1.2" }],
            "series": [
                { "case": "true", "way": "spawn", "engine": null, "ns": ms(&[1]) },
                { "case": "true", "way": "engine", "engine": "docker", "ns": ms(&[100, 300, 200]) },
                { "case": "true", "way": "socket", "engine": "docker", "ns": ms(&[4]) },
                { "case": "one-shot", "way": "stream", "engine": "docker", "ns": ms(&[50]) },
                { "case": "create", "way": "engine", "engine": "docker", "ns": ms(&[100]) },
                { "case": "create", "way": "guest", "engine": "docker", "ns": ms(&[150]) },
            ],
            "memory": [{ "engine": "docker", "idle": 2048, "after": 3072, "most": 4096, "flood": 1 << 20 }],
        }))
        .expect("a report")
    }

    #[test]
    fn the_page_has_medians_ratios_and_targets() {
        let page = page(&report(), "a machine");
        assert!(page.contains("| `true` | 200 (300) | 4.00 (4.00) | 50.0 | – | – |"), "{page}");
        assert!(page.contains("| one & <all> | – | – | – | 50.0 (50.0) | – |"), "{page}");
        assert!(page.contains("| docker: make | 100 (100) | 150 (150) | – |"), "{page}");
        assert!(!page.contains("| make |") && !page.contains("docker: `true`"), "{page}");
        assert!(page.contains("more than 1.3 × the engine | at most 150 | 20.0, pass |"), "{page}");
        assert!(page.contains("| docker | 2.00 | 3.00 | 4.00 | 1.00 |"), "{page}");
        assert!(page.contains("times faster than the engine | at least 60 | 50.0, fail |"), "{page}");
        assert!(page.contains("99th percentile, ms | at most 10 | 4.00, pass |"), "{page}");
        assert!(page.contains("a machine; docker 1.2."), "{page}");
    }
}
