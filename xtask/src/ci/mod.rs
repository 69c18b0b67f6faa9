//! `cargo xtask ci`: what has to hold before a change goes in, cheapest first, from a bare machine.

mod budgets;
mod licences;

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::sh::{sh, took};
use crate::{guest, test};

/// With an example, so that dependencies have the features of the tests: the results of the lints' check are then
/// reused. Of the programs, those that no library has the name of.
const DOC: &[&str] = &[
    "doc",
    "--workspace",
    "--no-deps",
    "--locked",
    "--lib",
    "--bin",
    "xtask",
    "--bin",
    "container",
    "--example",
    "link_bench",
];

type Step = (&'static str, fn() -> Result<()>);

const STEPS: &[Step] = &[
    ("format", || sh("cargo", ["fmt", "--all", "--check"]).run()),
    ("licences and sources", licences::check),
    ("rules", || sh("cargo", ["test", "--package", "xtask"]).run()),
    ("guest", || guest::build_fast(&[guest::GUEST, guest::WORKER])), // before all that compiles `coracle`, which embeds it
    ("lints", || sh("cargo", ["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"]).run()),
    ("documentation", || sh("cargo", DOC).env("RUSTDOCFLAGS", "--deny warnings").run()),
    ("budgets", budgets::print),
    ("tests", || test::run(&[])),
];

pub(crate) fn run(words: &[String]) -> Result<()> {
    ensure!(words.is_empty(), "usage: cargo xtask ci");
    let begun = Instant::now();
    let mut times = vec![];
    let mut outcome = Ok(());
    for (name, act) in STEPS {
        println!("\n== {name}");
        let step = Instant::now();
        outcome = act().with_context(|| format!("step `{name}`"));
        times.push((name, took(step), if outcome.is_ok() { "ok" } else { "failed" }));
        if outcome.is_err() {
            break;
        }
    }
    println!();
    for (name, time, ok) in times {
        println!("{name:22} {time:>10}  {ok}");
    }
    println!("{:22} {:>10}", "all", took(begun));
    outcome
}
