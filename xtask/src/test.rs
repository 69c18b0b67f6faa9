//! `cargo xtask test`: everything, on a machine that may have neither tools nor engines.
//!
//! Nearly everything runs on the fake or the embedded engine, and a part of it on the others; with `--all-engines` everything
//! on each. The harness chooses (`tests/engines/tier.rs`).

pub(crate) mod all_engines;
mod matrix;
mod ran;
mod sweep;

use std::env::join_paths;
use std::ffi::OsString;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::Result;

use self::matrix::Matrix;
pub(crate) use self::ran::Runs;
use crate::compiler::Compiler;
use crate::engines::apt;
use crate::sh::{var, which};
use crate::skips::Skips;
use crate::{clients, guest, tools};

/// Packages in the image of most tests, on the fake engine too.
const IMAGE_PACKAGES: &[&str] = &["busybox-static"];

/// Packages that tests run, read or pack into an image: the host's own packages are the base where no registry answers.
const PACKAGES: &[&str] = &[
    "bash",
    "ca-certificates",
    "chromium",
    "curl",
    "docker-registry",
    "fish",
    "git",
    "openssh-client",
    "python3",
    "ripgrep",
    "sshfs",
    "util-linux",
    "zsh",
];

/// Build targets of a run. Examples are measurements, and one of them is interrupted by a test.
const TARGETS: &[&str] = &["--workspace", "--bins", "--tests", "--example", "link_bench"];

pub(crate) fn run(words: &[String]) -> Result<()> {
    run_with(Compiler::Plain, words)
}

/// The same with a compiler that may have built it all before.
pub(crate) fn run_with(compiler: Compiler, words: &[String]) -> Result<()> {
    let begun = Instant::now();
    let (options, rest): (Vec<&str>, Vec<&str>) =
        words.iter().map(String::as_str).partition(|it| matrix::OPTIONS.contains(it));
    apt::ensure(IMAGE_PACKAGES)?;
    if !options.contains(&"--fake-only") {
        apt::ensure(PACKAGES)?;
        // Where there is systemd, the package would open this machine for logins.
        if !Path::new("/run/systemd/system").exists() {
            apt::ensure(&["openssh-server"])?;
        }
    }
    let path = nextest()?;
    let mut matrix = Matrix::up(&options)?;
    beside_the_clients(|| build(compiler))?;
    matrix.drop_the_unreachable();
    Skips::clear();
    Runs::clear();
    sweep::run(&matrix.engines, &matrix.run);
    sweep::run_embedded(&matrix.engines);
    matrix.announce();
    let ran = tests(compiler, &matrix, path, &rest);
    sweep::run(&matrix.engines, &matrix.run);
    sweep::run_embedded(&matrix.engines);
    let (skips, runs) = (Skips::noted(), Runs::noted());
    runs.print();
    matrix.print();
    skips.print();
    let outcome = ran.and_then(|()| {
        if !matrix.has_everything() {
            return Ok(()); // a caller without root, or with a selection of engines, expects skipped tests
        }
        runs.check()?;
        if var("CI").is_some() { skips.check() } else { Ok(()) }
    });
    if matrix.all && rest.is_empty() {
        all_engines::note(&matrix.engines, &runs, outcome.is_ok(), begun.elapsed())?;
    }
    outcome
}

/// The clients' packages come over the network while the compiler works.
pub(crate) fn beside_the_clients(build: impl FnOnce() -> Result<()>) -> Result<()> {
    thread::scope(|scope| {
        scope.spawn(clients::ensure);
        build()
    })
}

/// Programs and tests in one build, so that features are resolved once: the tests' dependencies let the fake engine start
/// host programs, and the `coracle` that tests start has to be the one that can.
fn build(compiler: Compiler) -> Result<()> {
    guest::build_for_tests(compiler.of_guests())?;
    compiler.cargo(&[&["build"], TARGETS].concat())?.run()
}

fn tests(compiler: Compiler, matrix: &Matrix, path: OsString, rest: &[&str]) -> Result<()> {
    let profile = if var("CI").is_some() { "ci" } else { "default" };
    compiler
        .cargo(&[&["nextest", "run", "--profile", profile], TARGETS, rest].concat())?
        .env("PATH", path)
        .env("CORACLE_ENGINES", matrix.engines.join(","))
        .env("CORACLE_TEST_SUBSET", if matrix.is_subset { "1" } else { "" })
        .env("CORACLE_TEST_RUN", &matrix.run)
        .env("INSTA_UPDATE", var("INSTA_UPDATE").unwrap_or_else(|| "no".into()))
        .run()?;
    // Of the whole workspace: with fewer packages cargo chooses other features, and builds half of it once more.
    compiler.cargo(&["test", "--doc", "--workspace"])?.run()
}

/// Makes sure of cargo-nextest and gives the search path on which cargo finds it.
fn nextest() -> Result<OsString> {
    let path = var("PATH").unwrap_or_default();
    if which("cargo-nextest").is_some() {
        return Ok(path.into());
    }
    let program = tools::installed("cargo-nextest", "0.9.143")?;
    let dir = program.parent().map(Path::to_owned);
    Ok(join_paths(dir.into_iter().chain(std::env::split_paths(&path)))?)
}
