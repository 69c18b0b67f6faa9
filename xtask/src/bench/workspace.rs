//! The file tools of a session, as a page for the book.

use super::report::Aim::{AtLeast, AtMost, Below};
use super::report::Measure::{Median, Other, Ratio};
use super::report::{Report, Series, Target, cell, number};

pub(super) fn page(report: &Report, machine: &str) -> String {
    let rounds = report.series.iter().map(Series::count).min().unwrap_or_default();
    let load = report.load_range();
    let mut page = format!(
        "# Files of a session: times\n\n\
         Written by `cargo xtask bench workspace`. {machine}; {}{load}.\n\n\
         Milliseconds, median and quartiles of {rounds} rounds, in each of which all ways take turns in the same container. \
         In its turn each reads, and writes, ten times in a row, as agents do; all are counted.\n\n\
         - the engine: its own `exec` with `cat`, `tee` and the image's `grep -rn`\n\
         - the tool: `read_file`, `write_file` and `grep` over a link that is open, as a server calls them, the event log \
         included. A write's content is on the disk when it is answered, its name 20 ms later; `tee` leaves both to the kernel\n\
         - a plain process: create, write, fsync and rename of a file of the same size, as root on the host and in the \
         directory that the container has as its workspace; it writes when what the tool's writes leave is done\n\
         - the host: ripgrep over the same files outside of any container\n\n\
         | | the engine | the tool | a plain process | the host |\n|---|--:|--:|--:|--:|\n",
        report.versions()
    );
    let cases: Vec<_> = report.cases.iter().collect();
    report.rows(&mut page, &cases, &["engine", "tool", "plain", "host"], cell);
    for engine in &report.engines {
        let told = |name: &str| mib(report, name, &engine.name).map(number);
        let (Some(after), Some(most)) = (told("mcp"), told("mcp at most")) else { continue };
        page.push_str(&format!(
            "\n{}: `coracle mcp` that serves eight sessions at once over HTTP, each of which makes 200 calls of all kinds, \
             has {after} MiB of memory after them, and never had more than {most} MiB.\n",
            engine.name
        ));
    }
    report.targets(&mut page, TARGETS);
    page
}

/// Memory of the server's process, where it was measured.
fn mib(report: &Report, name: &str, engine: &str) -> Option<f64> {
    let sizes = report.sizes.iter().find(|it| it.name == name && it.engine == engine)?;
    Some(sizes.median() / 1024.0)
}

const TARGETS: &[Target] = &[
    Target("read 4 KiB: ms", Below(1.0), Median(("read", "tool"))),
    Target("write 4 KiB: ms", Below(1.0), Median(("write", "tool"))),
    Target("read 4 KiB: times faster than the engine", AtLeast(30.0), Ratio(("read", "engine"), ("read", "tool"))),
    Target("write 4 KiB: times faster than the engine", AtLeast(30.0), Ratio(("write", "engine"), ("write", "tool"))),
    Target("write 4 KiB: share of a plain process's time", AtMost(2.0), Ratio(("write", "tool"), ("write", "plain"))),
    Target("find lines: times faster than the engine", AtLeast(3.0), Ratio(("grep", "engine"), ("grep", "tool"))),
    Target("find lines: share of ripgrep's time on the host", AtMost(1.5), Ratio(("grep", "tool"), ("grep", "host"))),
    Target(
        "server of eight sessions with 200 calls each, at most: MiB",
        Below(60.0),
        Other(|it, engine| mib(it, "mcp at most", engine)),
    ),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_says_which_marks_are_met() {
        let series =
            |case: &str, way: &str, us: u64| json!({ "case": case, "way": way, "engine": "docker", "ns": [us * 1000] });
        let report = Report::read(&json!({
            "cases": [
                { "name": "read", "label": "read" }, { "name": "write", "label": "write" }, { "name": "grep", "label": "find" },
            ],
            "engines": [{ "name": "docker", "version": "1.2" }],
            "series": [
                series("read", "engine", 60_000), series("read", "tool", 500),
                series("write", "tool", 800), series("write", "plain", 320),
                series("grep", "engine", 300_000), series("grep", "tool", 200_000), series("grep", "host", 160_000),
            ],
            "load": [1.0],
            "sizes": [
                { "name": "mcp", "engine": "docker", "kib": [40 << 10] },
                { "name": "mcp at most", "engine": "docker", "kib": [61 << 10] },
            ],
        }))
        .expect("a report");
        let page = page(&report, "a machine");
        assert!(page.contains("| docker: read | 60.0 (60.0 to 60.0) | 0.500 (0.500 to 0.500) | – | – |"), "{page}");
        assert!(page.contains("docker: write | – | 0.800 (0.800 to 0.800) | 0.320 (0.320 to 0.320) | – |"), "{page}");
        assert!(page.contains("plain process's time | at most 2 | 2.50, fail |"), "{page}");
        assert!(page.contains("read 4 KiB: ms | below 1 | 0.500, pass |"), "{page}");
        assert!(page.contains("than the engine | at least 30 | 120, pass |"), "{page}");
        assert!(page.contains("than the engine | at least 3 | 1.50, fail |"), "{page}");
        assert!(page.contains("time on the host | at most 1.5 | 1.25, pass |"), "{page}");
        assert!(page.contains("has 40.0 MiB of memory after them, and never had more than 61.0 MiB"), "{page}");
        assert!(page.contains("200 calls each, at most: MiB | below 60 | 61.0, fail |"), "{page}");
    }
}
