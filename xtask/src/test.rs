//! `cargo xtask test`: everything that this machine can run as it is, on the fake and the embedded engine.
//!
//! It needs no root and installs nothing: a test that lacks something is skipped, and counted with its reason. `--engines` and
//! `--all-engines` set up what is missing first. The harness chooses the engines of each test (`tests/engines/tier.rs`).

pub(crate) mod all_engines;
mod busybox;
mod matrix;
mod ran;
mod sweep;

use std::env::join_paths;
use std::ffi::OsString;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::Result;

pub(crate) use self::matrix::Coverage;
use self::matrix::Matrix;
pub(crate) use self::ran::Runs;
use crate::compiler::Compiler;
use crate::engines::apt;
use crate::sh::{var, which};
use crate::skips::Skips;
use crate::{clients, guest, tools};

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
    let (coverage, rest) = Coverage::of(words, matrix::named().as_deref())?;
    run_with(Compiler::Plain, coverage, &rest)
}

/// The same with a compiler that may have built it all before. `rest` is for cargo-nextest.
pub(crate) fn run_with(compiler: Compiler, coverage: Coverage, rest: &[String]) -> Result<()> {
    let begun = Instant::now();
    if coverage.sets_up() && apt::is_root() {
        apt::ensure(PACKAGES)?;
        // Where there is systemd, the package would open this machine for logins.
        if !Path::new("/run/systemd/system").exists() {
            apt::ensure(&["openssh-server"])?;
        }
    }
    busybox::ensure()?;
    let path = nextest()?;
    let mut matrix = Matrix::up(coverage)?;
    if matrix.coverage.sets_up() {
        beside_the_clients(|| build(compiler))?;
    } else {
        clients::generate_without_downloads();
        build(compiler)?;
    }
    matrix.drop_the_unusable();
    Skips::clear();
    Runs::clear();
    sweep::run(&matrix.engines, &matrix.run);
    sweep::run_embedded(&matrix.engines);
    matrix.print();
    let ran = tests(compiler, &matrix, path, rest);
    sweep::run(&matrix.engines, &matrix.run);
    sweep::run_embedded(&matrix.engines);
    let (skips, runs) = (Skips::noted(), Runs::noted());
    runs.print();
    matrix.print();
    skips.print();
    let outcome = ran.and_then(|()| {
        if !matrix.has_everything() {
            return Ok(()); // skipped tests are expected
        }
        runs.check()?;
        if var("CI").is_some() { skips.check() } else { Ok(()) }
    });
    if matrix.coverage == Coverage::All && rest.is_empty() {
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

fn tests(compiler: Compiler, matrix: &Matrix, path: OsString, rest: &[String]) -> Result<()> {
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    let profile = if var("CI").is_some() { "ci" } else { "default" };
    compiler
        .cargo(&[&["nextest", "run", "--profile", profile], TARGETS, &rest].concat())?
        .env("PATH", path)
        .env("CORACLE_ENGINES", matrix.engines.join(","))
        .env("CORACLE_TEST_PART", matrix.part())
        .env("CORACLE_TEST_RUN", &matrix.run)
        .env("CORACLE_TEST_DOWNLOADS", if matrix.coverage.downloads() { "" } else { "never" })
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
