//! The page about listing containers.

use super::report::Aim::AtMost;
use super::report::Measure::{Median, Ratio};
use super::report::{Report, Series, Target, cell};

pub(super) fn page(report: &Report, machine: &str) -> String {
    let rounds = report.series.iter().filter(|it| it.case == "list").map(Series::count).max().unwrap_or_default();
    let load = report.load_range();
    let mut page = format!(
        "# Listing containers: times\n\n\
         Written by `cargo xtask bench list`. {machine}; {}{load}.\n\n\
         Milliseconds, median and quartiles of {rounds} rounds, in each of which all ways take turns, over the same 100 \
         running containers of a busybox.\n\n\
         - the engine: its own `ps --all --quiet --no-trunc` for what has our label, and `inspect` of all that it named\n\
         - `coracle`: a process `coracle call` with `list`, which asks the guests that may have jobs, too\n\
         - over MCP: the same by a server that an agent has; the containers that no event has named since the last \
         list are not inspected again\n\n\
         | | the engine | `coracle` | `coracle`, over MCP |\n|---|--:|--:|--:|\n",
        report.versions()
    );
    let cases: Vec<_> = report.cases.iter().collect();
    report.rows(&mut page, &cases, &["engine", "coracle", "mcp"], cell);
    report.targets(&mut page, TARGETS);
    page
}

const TARGETS: &[Target] = &[
    Target(
        "list 100 containers: share of the engine's time",
        AtMost(1.5),
        Ratio(("list", "coracle"), ("list", "engine")),
    ),
    Target("the same over MCP: ms", AtMost(5.0), Median(("list", "mcp"))),
    Target("the status of one over MCP: ms", AtMost(5.0), Median(("status", "mcp"))),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_says_whether_the_mark_is_met() {
        let series =
            |way: &str, ms: u64| json!({ "case": "list", "way": way, "engine": "docker", "ns": [ms * 1_000_000] });
        let report = Report::read(&json!({
            "cases": [{ "name": "list", "label": "list 100 containers" }],
            "engines": [{ "name": "docker", "version": "1.2" }],
            "series": [series("engine", 200), series("coracle", 240), series("mcp", 4)],
            "load": [1.0],
        }))
        .expect("a report");
        let page = page(&report, "a machine");
        assert!(
            page.contains(
                "| docker: list 100 containers | 200 (200 to 200) | 240 (240 to 240) | 4.00 (4.00 to 4.00) |"
            ),
            "{page}"
        );
        assert!(page.contains("over MCP: ms | at most 5 | 4.00, pass |"), "{page}");
        assert!(page.contains("share of the engine's time | at most 1.5 | 1.20, pass |"), "{page}");
    }
}
