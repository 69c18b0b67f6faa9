//! The reports of `cargo xtask modules` and `cargo xtask size`, as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cycles::cycles;
use crate::dependencies::{Dependency, Graph, between_files, between_modules, dependencies, modules, witness};
use crate::load::{Crate, ROOT, total_code};
use crate::rules::{CODE_LIMIT, CRATE_LIMIT};

/// Limit of named items of an edge.
const NAMED: usize = 6;

/// Modules, their edges, and the cycles of modules and of files.
pub fn structure(loaded: &Crate) -> String {
    let found = dependencies(loaded);
    let graph = between_modules(loaded, &found);
    let lines = loaded.lines();
    let mut text = format!(
        "{}: {} modules, {} files, {} lines of code, {} of tests\n\n",
        loaded.name,
        modules(loaded).len(),
        loaded.files.len(),
        number(lines.code),
        number(lines.tests)
    );
    text += &table(loaded, &graph);
    text += &cycles_of("modules", loaded, &graph);
    text += &cycles_of("files", loaded, &between_files(loaded, &found));
    text
}

fn table(loaded: &Crate, graph: &Graph) -> String {
    let (lines, all) = (loaded.lines_by_module(), modules(loaded));
    let width = all.iter().map(|name| name.len()).max().unwrap_or(0).max(ROOT.len());
    let mut text = format!("  {:width$}   code  tests  uses\n", "module");
    for name in all.into_iter().chain([ROOT]) {
        let uses: Vec<&str> = graph.get(name).into_iter().flatten().map(|edge| edge.0.as_str()).collect();
        let size = lines.get(name).copied().unwrap_or_default();
        let (code, tests) = (number(size.code), number(size.tests));
        let _ = writeln!(text, "  {name:width$} {code:>6} {tests:>6}  {}", uses.join(", "));
    }
    text
}

/// Each cycle with its edges: what is used, and one place of it.
fn cycles_of(nodes: &str, loaded: &Crate, graph: &Graph) -> String {
    let found = cycles(graph);
    let mut text = format!("\nCycles of {nodes}: {}\n", found.len());
    for cycle in found {
        let _ = writeln!(text, "  {}", cycle.join(", "));
        for from in &cycle {
            for (to, edge) in graph[*from].iter().filter(|(to, _)| cycle.contains(&to.as_str())) {
                let _ = writeln!(text, "    {from} → {to}: {}\n      {}", names_of(edge), witness(loaded, edge));
            }
        }
    }
    text
}

fn names_of(edge: &[Dependency]) -> String {
    let names: BTreeSet<&str> = edge.iter().map(|it| it.item.as_str()).collect();
    let shown: Vec<&str> = names.iter().copied().take(NAMED).collect();
    match names.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Lines of code and tests by crate, the share of each crate, and the limits.
pub fn sizes(crates: &[Crate]) -> String {
    let whole = total_code(crates);
    let mut text = format!("{:24} {:>7} {:>7} {:>6}\n", "", "code", "tests", "share");
    for loaded in crates {
        let lines = loaded.lines();
        let (code, tests, share) = (number(lines.code), number(lines.tests), percent(lines.code, whole));
        let mark = if lines.code * 100 > whole * CRATE_LIMIT { "  above the limit" } else { "" };
        let _ = writeln!(text, "{:24} {code:>7} {tests:>7} {share:>4.1} %{mark}", loaded.name);
    }
    let tests: usize = crates.iter().map(|loaded| loaded.lines().tests).sum();
    let _ = writeln!(text, "{:24} {:>7} {:>7}", "all", number(whole), number(tests));
    let _ = writeln!(text, "limits: {} lines of code, {CRATE_LIMIT} % for a crate", number(CODE_LIMIT));
    text
}

/// The same for programs.
pub fn sizes_json(crates: &[Crate]) -> Value {
    let whole = total_code(crates);
    let rows = crates.iter().map(|loaded| {
        let lines = loaded.lines();
        json!({ "crate": loaded.name, "code": lines.code, "tests": lines.tests, "percent": percent(lines.code, whole) })
    });
    let rows: Vec<Value> = rows.collect();
    json!({ "crates": rows, "code": whole, "code_limit": CODE_LIMIT, "crate_limit_percent": CRATE_LIMIT })
}

/// Rounded to one decimal.
fn percent(part: usize, whole: usize) -> f64 {
    (part as f64 * 1000.0 / whole.max(1) as f64).round() / 10.0
}

/// `12,345`
fn number(it: usize) -> String {
    if it < 1000 { it.to_string() } else { format!("{},{:03}", number(it / 1000), it % 1000) }
}
