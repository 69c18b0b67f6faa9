//! The page about creating and removing containers.

use std::fmt::Write as _;

use super::report::Aim::AtMost;
use super::report::Measure::{Beyond, Median, Other, Ratio};
use super::report::{Report, Series, Target, cell};

pub(super) fn page(report: &Report, machine: &str) -> String {
    let rounds = report.series.iter().filter(|it| it.case == "create").map(Series::count).max().unwrap_or_default();
    let mut page = format!(
        "# Making and removing containers: times\n\n\
         Written by `cargo xtask bench create`. {machine}; {}{}.\n\n\
         Milliseconds, median and quartiles of {rounds} rounds, in each of which all ways take turns. All containers \
         are of one image, which the first `create` of the purpose `python` made.\n\n\
         - the engine: its own `run --detach IMAGE sleep 1000000`, and `rm --force` (Podman: `--time=0`)\n\
         - on a network: the same with `--network NAME`, a bridge network of its own, as `coracle` makes all containers: on \
         the engine's default one containers reach each other\n\
         - bare: a process `coracle call` with `create` of that `image` and `mount_cwd: false`, with nothing of the \
         person's to put in, and one with `destroy`\n\
         - over MCP: the bare one by a server that an agent has\n\
         - full: the same with `purpose: \"python\"` alone, for a person with a git configuration, two variables that \
         go in and, where the host has any, certificates of its own; the working directory is mounted\n\n\
         | | the engine | the engine, on a network | `coracle`, bare | `coracle`, over MCP | `coracle`, full |\n|---|--:|--:|--:|--:|--:|\n",
        report.versions(),
        report.load_range()
    );
    let cases: Vec<_> = report.cases.iter().collect();
    report.rows(&mut page, &cases, &["engine", "engine_network", "bare", "mcp", "full"], cell);
    first(report, &mut page);
    steps(report, &mut page);
    report.targets(&mut page, TARGETS);
    page
}

fn first(report: &Report, page: &mut String) {
    let first = report.engines.iter().filter_map(|it| Some((&it.name, report.of("first", "full", &it.name)?)));
    let told: Vec<_> = first.map(|(name, it)| format!("{name} {:.0} s", it.median() / 1e3)).collect();
    let _ = writeln!(
        page,
        "\nThe first `create` of the purpose, which made the image, was before the rounds: {}. No figure here counts it.",
        told.join(", ")
    );
}

/// Durations of the steps in the report of the full container.
fn steps(report: &Report, page: &mut String) {
    let mut names: Vec<&str> = Vec::new();
    for it in report.series.iter().filter(|it| it.case == "step") {
        if !names.contains(&it.way.as_str()) {
            names.push(&it.way);
        }
    }
    page.push_str(
        "\n## Steps\n\nThe full one's own report: steps that had something to do, in whole milliseconds. To make and \
         start the container is none of them.\n\n| |",
    );
    let _ = report.engines.iter().try_for_each(|it| write!(page, " {} |", it.name));
    let _ = writeln!(page, "\n|---|{}", "--:|".repeat(report.engines.len()));
    let rows = names.iter().map(|it| (format!("`{it}`"), "step", *it));
    for (label, case, way) in rows.chain([("together, after `workspace`".to_owned(), "steps", "full")]) {
        let cells = report.engines.iter().map(|it| cell(report.of(case, way, &it.name)));
        let _ = writeln!(page, "| {label} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

fn beyond_engine(report: &Report, engine: &str) -> Option<f64> {
    let (ours, own) = (report.of("create", "full", engine)?, report.of("create", "engine", engine)?);
    Some(ours.median() - 1.3 * own.median())
}

const TARGETS: &[Target] = &[
    Target("make a full one: ms more than 1.3 × the engine", AtMost(150.0), Other(beyond_engine)),
    Target(
        "make one over MCP: share of the engine's time on a network",
        AtMost(1.25),
        Ratio(("create", "mcp"), ("create", "engine_network")),
    ),
    Target(
        "the same: ms more than the engine on a network",
        AtMost(60.0),
        Beyond(("create", "mcp"), ("create", "engine_network")),
    ),
    Target(
        "remove one over MCP: share of the engine's time",
        AtMost(1.2),
        Ratio(("destroy", "mcp"), ("destroy", "engine")),
    ),
    Target("a full one: ms more than a bare one", AtMost(150.0), Beyond(("create", "full"), ("create", "bare"))),
    Target("a full one: ms of its steps after `workspace`", AtMost(150.0), Median(("steps", "full"))),
    Target(
        "remove a full one: share of the engine's time",
        AtMost(1.5),
        Ratio(("destroy", "full"), ("destroy", "engine")),
    ),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn measured() -> Report {
        let ms = |it: &[u64]| it.iter().map(|it| it * 1_000_000).collect::<Vec<_>>();
        let series = |case: &str, way: &str, engine: &str, times: &[u64]| json!({ "case": case, "way": way, "engine": engine, "ns": ms(times) });
        Report::read(&json!({
            "cases": [{ "name": "create", "label": "make" }, { "name": "destroy", "label": "remove" }],
            "engines": [{ "name": "docker", "version": "1.2" }, { "name": "podman", "version": "3.4" }],
            "series": [
                series("first", "full", "docker", &[150_000]),
                series("create", "engine", "docker", &[100, 400, 200, 300]),
                series("create", "engine_network", "docker", &[200]),
                series("create", "bare", "docker", &[300]),
                series("create", "mcp", "docker", &[240]),
                series("create", "full", "docker", &[420]),
                series("create", "full", "podman", &[500]),
                series("create", "bare", "podman", &[300]),
                series("destroy", "engine", "docker", &[100]),
                series("destroy", "full", "docker", &[160]),
                series("step", "forward_git", "docker", &[7]),
                series("steps", "full", "docker", &[20]),
            ],
            "load": [1.5, 0.25, 1.0],
        }))
        .expect("a report")
    }

    #[test]
    fn the_page_has_quartiles_and_says_which_marks_are_met() {
        let page = page(&measured(), "a machine");
        assert!(
            page.contains("a machine; docker 1.2, podman 3.4; load of the last minute before the rounds 0.25 to 1.5."),
            "{page}"
        );
        assert!(page.contains("quartiles of 4 rounds"), "{page}");
        assert!(
            page.contains(
                "| docker: make | 200 (100 to 300) | 200 (200 to 200) | 300 (300 to 300) | 240 (240 to 240) | 420 (420 to 420) |"
            ),
            "{page}"
        );
        assert!(page.contains("before the rounds: docker 150 s. No"), "{page}");
        assert!(page.contains("| `forward_git` | 7.00 (7.00 to 7.00) | – |"), "{page}");
        assert!(page.contains("than 1.3 × the engine | at most 150 | 160, fail | – |"), "{page}");
        assert!(
            page.contains("over MCP: share of the engine's time on a network | at most 1.25 | 1.20, pass | – |"),
            "{page}"
        );
        assert!(page.contains("more than the engine on a network | at most 60 | 40.0, pass | – |"), "{page}");
        assert!(page.contains("than a bare one | at most 150 | 120, pass | 200, fail |"), "{page}");
        assert!(page.contains("after `workspace` | at most 150 | 20.0, pass | – |"), "{page}");
        assert!(page.contains("share of the engine's time | at most 1.5 | 1.60, fail | – |"), "{page}");
    }
}
