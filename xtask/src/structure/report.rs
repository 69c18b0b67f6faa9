//! The reports of `cargo xtask modules` and `cargo xtask size`, as text.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::cut::cut;
use crate::cycles::cycles;
use crate::dependencies::{Dependency, Graph, between_files, between_modules, dependencies, items, modules, witness};
use crate::load::{Crate, ROOT, total_code};
use crate::rules::{CODE_LIMIT, CRATE_LIMIT};

/// Limit of named items of an edge.
const NAMED: usize = 6;

/// Modules, their edges and their cycles.
pub fn structure(loaded: &Crate) -> String {
    let found = dependencies(loaded);
    let graph = between_modules(loaded, &found);
    let knots = cycles(&graph);
    let lines = loaded.lines();
    let mut text = format!(
        "{}: {} modules, {} files, {} lines of code, {} of tests\n\n",
        loaded.name,
        modules(loaded).len(),
        loaded.files.len(),
        number(lines.code),
        number(lines.tests)
    );
    text += &table(loaded, &graph, &knots);
    text += &module_cycles(loaded, &graph, &knots);
    text += &file_cycles(loaded, &found);
    text
}

fn table(loaded: &Crate, graph: &Graph, knots: &[Vec<&str>]) -> String {
    let knot = |it: &str| knots.iter().position(|knot| knot.contains(&it)).map(|it| it + 1);
    let (lines, all) = (loaded.lines_by_module(), modules(loaded));
    let width = all.iter().map(|it| it.len()).max().unwrap_or(0).max(ROOT.len());
    let mut text = format!("  {:width$}   code  tests  cycle  uses\n", "module");
    for name in all.into_iter().chain([ROOT]) {
        let uses: Vec<&str> = graph.get(name).into_iter().flatten().map(|it| it.0.as_str()).collect();
        let size = lines.get(name).copied().unwrap_or_default();
        let mark = knot(name).map_or_else(String::new, |it| format!("#{it}"));
        let (code, tests) = (number(size.code), number(size.tests));
        let row = format!("  {name:width$} {code:>6} {tests:>6}  {mark:>5}  ");
        text += &wrapped(&row, &uses.join(", "));
    }
    text
}

fn module_cycles(loaded: &Crate, graph: &Graph, knots: &[Vec<&str>]) -> String {
    if knots.is_empty() {
        return "\nNo cycle between modules.\n".to_owned();
    }
    let lines = loaded.lines_by_module();
    let mut text = String::new();
    for (at, knot) in knots.iter().enumerate() {
        let size: usize = knot.iter().filter_map(|it| lines.get(it)).map(|it| it.code).sum();
        let head = format!("\nCycle #{} of {} modules, {} lines: ", at + 1, knot.len(), number(size));
        text += &wrapped(&head, &knot.join(", "));
        text += &cuts(loaded, graph, knot);
        text += "\n  All edges of it:\n";
        for (from, to, edge) in edges_inside(graph, knot) {
            text += &edge_line(loaded, "    ", (from, to), edge);
        }
    }
    text
}

/// The least work that opens a cycle, with every place to change.
fn cuts(loaded: &Crate, graph: &Graph, knot: &[&str]) -> String {
    let cuts = cut(graph, &knot.iter().map(|it| key(graph, it)).collect::<Vec<_>>());
    let names: usize = cuts.iter().map(|(from, to)| items(&graph[*from][*to]).len()).sum();
    let mut text = format!("\n  Without these {} edges ({names} items) it is none any more:\n", cuts.len());
    for (from, to) in cuts {
        let edge = &graph[from][to];
        let _ = writeln!(text, "    {from} → {to}: {}", names_of(edge, usize::MAX));
        for place in places(loaded, edge) {
            let _ = writeln!(text, "      {place}");
        }
    }
    text
}

fn key<'a>(graph: &'a Graph, name: &str) -> &'a str {
    graph.get_key_value(name).map_or("", |it| it.0.as_str())
}

/// Every use behind an edge, one line each.
fn places(loaded: &Crate, edge: &[Dependency]) -> BTreeSet<String> {
    edge.iter().map(|it| witness(loaded, std::slice::from_ref(it))).collect()
}

fn edges_inside<'a>(graph: &'a Graph, knot: &[&str]) -> Vec<(&'a str, &'a str, &'a [Dependency])> {
    let mut found = vec![];
    for (from, edges) in graph.iter().filter(|(from, _)| knot.contains(&from.as_str())) {
        for (to, edge) in edges.iter().filter(|(to, _)| knot.contains(&to.as_str())) {
            found.push((from.as_str(), to.as_str(), edge.as_slice()));
        }
    }
    found
}

fn edge_line(loaded: &Crate, indent: &str, (from, to): (&str, &str), edge: &[Dependency]) -> String {
    format!("{indent}{from} → {to}: {}\n{indent}  {}\n", names_of(edge, NAMED), witness(loaded, edge))
}

fn names_of(edge: &[Dependency], most: usize) -> String {
    let names = items(edge);
    let shown: Vec<&str> = names.iter().copied().take(most).collect();
    let more = names.len() - shown.len();
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// Cycles between the files of one module. They are no failure.
fn file_cycles(loaded: &Crate, found: &[Dependency]) -> String {
    let mut text = String::new();
    for top in modules(loaded) {
        let graph = between_files(loaded, found, top);
        for knot in cycles(&graph) {
            let common = format!("crates/{}/src/", loaded.name);
            let short: Vec<&str> = knot.iter().map(|it| it.trim_start_matches(&common)).collect();
            text += &wrapped(&format!("  {top}: {} files: ", knot.len()), &short.join(", "));
            for (from, to) in cut(&graph, &knot) {
                let edge = &graph[from][to];
                let _ = writeln!(
                    text,
                    "      cut {} → {}: {}",
                    from.trim_start_matches(&common),
                    to.trim_start_matches(&common),
                    names_of(edge, NAMED)
                );
            }
        }
    }
    if text.is_empty() {
        return "\nNo cycle between the files of a module.\n".to_owned();
    }
    format!("\nCycles between the files of one module (no failure), and the least that opens each:\n{text}")
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

/// A row whose last part goes on beneath itself, so that lines stay readable.
fn wrapped(head: &str, rest: &str) -> String {
    let (indent, mut text, mut length) = (head.chars().count().min(40), head.to_owned(), head.chars().count());
    for (at, word) in rest.split(' ').enumerate() {
        if length + word.len() > 118 {
            text = format!("{}\n{:indent$}", text.trim_end(), "");
            length = indent;
        } else if at > 0 {
            text.push(' ');
            length += 1;
        }
        text += word;
        length += word.chars().count();
    }
    format!("{}\n", text.trim_end())
}
