//! Commands and files in a container, as a page for the book.

use std::fmt::Write as _;

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

const TARGETS: &[Target] = &[
    Target {
        what: "`true` on a held link, socket: times faster than the engine",
        aim: "60",
        measured: |it, engine| ratio(it.of("true", "engine", engine), it.of("true", "socket", engine)),
        met: |it| it >= 60.0,
    },
    Target {
        what: "the same in spawns on the host",
        aim: "at most 2",
        measured: |it, engine| ratio(it.of("true", "socket", engine), it.spawn()),
        met: |it| it <= 2.0,
    },
    Target {
        what: "the same, 99th percentile, ms",
        aim: "at most 10",
        measured: |it, engine| it.of("true", "socket", engine).map(Series::p99),
        met: |it| it <= 10.0,
    },
    Target {
        what: "`true` on a held link, stream: times faster than the engine",
        aim: "40",
        measured: |it, engine| ratio(it.of("true", "engine", engine), it.of("true", "stream", engine)),
        met: |it| it >= 40.0,
    },
    Target {
        what: "the same in spawns on the host",
        aim: "at most 3",
        measured: |it, engine| ratio(it.of("true", "stream", engine), it.spawn()),
        met: |it| it <= 3.0,
    },
    Target {
        what: "the same, 99th percentile, ms",
        aim: "at most 10",
        measured: |it, engine| it.of("true", "stream", engine).map(Series::p99),
        met: |it| it <= 10.0,
    },
    Target {
        what: "a process `coracle exec`, socket: share of the engine's time",
        aim: "at most 0.25",
        measured: |it, engine| ratio(it.of("one-shot", "socket", engine), it.of("one-shot", "engine", engine)),
        met: |it| it <= 0.25,
    },
    Target {
        what: "a process `coracle exec`, stream: ms more than the engine",
        aim: "at most 25",
        measured: |it, engine| {
            let (ours, own) = (it.of("one-shot", "stream", engine)?, it.of("one-shot", "engine", engine)?);
            Some(ours.median() - own.median())
        },
        met: |it| it <= 25.0,
    },
    Target {
        what: "1,000 × `true` at once, socket: a second",
        aim: "1,000",
        measured: |it, engine| it.of("at-once", "socket", engine).map(|it| 1e3 / it.median()),
        met: |it| it >= 1000.0,
    },
    Target {
        what: "make a container: ms more than 1.3 × the engine",
        aim: "at most 150",
        measured: |it, engine| {
            let (ours, own) = (it.of("create", "guest", engine)?, it.of("create", "engine", engine)?);
            Some(ours.median() - 1.3 * own.median())
        },
        met: |it| it <= 150.0,
    },
    Target {
        what: "the same: ms more than without a guest",
        aim: "at most 40",
        measured: |it, engine| {
            let (guest, plain) = (it.of("create", "guest", engine)?, it.of("create", "plain", engine)?);
            Some(guest.median() - plain.median())
        },
        met: |it| it <= 40.0,
    },
    Target {
        what: "remove it: share of the engine's time",
        aim: "at most 1.5",
        measured: |it, engine| ratio(it.of("destroy", "guest", engine), it.of("destroy", "engine", engine)),
        met: |it| it <= 1.5,
    },
    Target {
        what: "memory of a guest under a flood: MiB more than idle",
        aim: "at most 64",
        measured: |it, engine| {
            let memory = it.memory.iter().find(|it| it.engine == engine)?;
            Some(memory.most.saturating_sub(memory.idle) as f64 / 1024.0)
        },
        met: |it| it <= 64.0,
    },
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
        assert!(page.contains("times faster than the engine | 60 | 50.0, fail |"), "{page}");
        assert!(page.contains("99th percentile, ms | at most 10 | 4.00, pass |"), "{page}");
        assert!(page.contains("a machine; docker 1.2."), "{page}");
    }
}
