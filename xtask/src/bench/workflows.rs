//! Workflows on one repository, as a page for the book.

use std::fmt::Write as _;

use super::report::Aim::Below;
use super::report::Measure::Beyond;
use super::report::{Report, Series, Target, cell, number};

pub(super) fn page(report: &Report, machine: &str) -> String {
    let rounds = report.series.iter().filter(|it| it.case == "worktree").map(Series::count).max().unwrap_or_default();
    let load = report.load_range();
    let mut page = format!(
        "# Workflows on one repository: times and memory\n\n\
         Written by `cargo xtask bench workflows`. {machine}; {}{load}.\n\n\
         Milliseconds, median and quartiles: {rounds} worktrees, one after the other, of a repository of 200 files, in a \
         sandbox that runs; then 20 workflows with a sandbox each, asked for at the same moment.\n\n\
         - `worktree add`: by git on this host, and nothing else\n\
         - git: what has to be done in any case, by git on this host: `fetch`, `status` to tell what is not committed, \
         `worktree add`\n\
         - a server: `worktree_create` in a process that serves for long, as `coracle mcp` is one\n\
         - `coracle`: a process `coracle worktree create`, of our own image, which is there; it starts, reads its settings \
         and asks the engine for the container, too\n\n\
         | | `worktree add` | git | a server | `coracle` |\n|---|--:|--:|--:|--:|\n",
        report.versions()
    );
    let cases: Vec<_> = report.cases.iter().collect();
    report.rows(&mut page, &cases, &["add", "git", "server", "coracle"], cell);
    memory(&mut page, report);
    report.targets(&mut page, TARGETS);
    page
}

fn memory(page: &mut String, report: &Report) {
    page.push_str(
        "\n## Memory of a workflow whose agent rests\n\n\
         MiB (proportional set size), median: a worker runs only while an agent does, so the guest is all that is inside.\n\n\
         | | guest | the engine's own process for the container |\n|---|--:|--:|\n",
    );
    for engine in &report.engines {
        let mib = |name: &str| {
            report.sizes.iter().find(|it| it.name == name && it.engine == engine.name).map(|it| it.median() / 1024.0)
        };
        let told = |it: Option<f64>| it.map_or("–".to_owned(), number);
        let _ = writeln!(page, "| {} | {} | {} |", engine.name, told(mib("guest")), told(mib("monitor")));
    }
}

const TARGETS: &[Target] = &[Target(
    "one more worktree by a server: ms beyond git's fetch, status and `worktree add`",
    Below(50.0),
    Beyond(("worktree", "server"), ("worktree", "git")),
)];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_says_what_lies_beyond_git_and_what_rests_in_memory() {
        let series =
            |way: &str, ms: u64| json!({ "case": "worktree", "way": way, "engine": "docker", "ns": [ms * 1_000_000] });
        let report = Report::read(&json!({
            "cases": [{ "name": "worktree", "label": "one more worktree" }],
            "engines": [{ "name": "docker", "version": "1.2" }],
            "series": [series("add", 5), series("git", 10), series("server", 50), series("coracle", 90)],
            "sizes": [{ "name": "guest", "engine": "docker", "kib": [2048, 2560, 9999] }],
        }))
        .expect("a report");
        let page = page(&report, "a machine");
        assert!(
            page.contains(
                "| docker: one more worktree | 5.00 (5.00 to 5.00) | 10.0 (10.0 to 10.0) | 50.0 (50.0 to 50.0) | 90.0"
            ),
            "{page}"
        );
        assert!(page.contains("| docker | 2.50 | – |"), "{page}");
        assert!(page.contains("`worktree add` | below 50 | 40.0, pass |"), "{page}");
    }
}
