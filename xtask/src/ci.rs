//! `cargo xtask ci`: what has to hold before a change goes in, cheapest first, from a bare machine.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::compiler::Compiler;
use crate::sh::{sh, target, took};
use crate::test::{self, Coverage};
use crate::{guest, tools};

type Step = (&'static str, fn() -> Result<()>);

const COMPILER: Compiler = Compiler::Checking;

const STEPS: &[Step] = &[
    ("format", || sh("cargo", ["fmt", "--all", "--check"]).run()),
    ("licences and sources", tools::check_dependencies),
    ("rules", || sh("cargo", ["test", "--package", "xtask"]).run()),
    ("guest", || guest::build_for_tests(COMPILER)), // before all that compiles `coracle`, which embeds it
    ("guest and worker alone", || guest::check_each(COMPILER)),
    ("lints and documentation", || test::beside_the_clients(build)),
    ("a program of another project", check_embedder),
    ("tests", || test::run_with(COMPILER, Coverage::Ci, &["-E", "not package(xtask)"].map(str::to_owned))), // those are the rules
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
        println!("{name:24} {time:>10}  {ok}");
    }
    println!("{:24} {:>10}", "all", took(begun));
    outcome
}

/// Outside of the workspace, where only what the crates declare themselves is there: no features that others enable.
fn check_embedder() -> Result<()> {
    sh("cargo", ["check", "--locked", "--manifest-path", "examples/embedder/Cargo.toml"])
        .env("CARGO_TARGET_DIR", target().join("embedder"))
        .run()
}

fn build() -> Result<()> {
    COMPILER.cargo(&["build", "--workspace", "--all-targets", "--locked"])?.run()
}
