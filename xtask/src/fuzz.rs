//! `cargo xtask fuzz`: malformed input to both ends of the guest protocol.
//!
//! A stable compiler is enough: the coverage that libFuzzer steers by comes from a pass of LLVM, which any rustc runs.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::sh::{root, sh, target, which};

/// Both directions, and both ends of the channels, as `fuzz/src` calls them.
const TARGETS: &[&str] = &["request", "response", "mux"];

/// Default duration of each target.
const SECONDS: u32 = 60;

/// The flags of `cargo fuzz`, without its sanitizers: no `unsafe` code handles frames.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

pub(crate) fn run(words: &[String]) -> Result<()> {
    let (names, seconds) = resolve(words)?;
    ensure!(which("c++").is_some(), "libFuzzer is C++: install a compiler, such as `g++`");
    let triple = triple()?;
    // With a target of its own nothing is instrumented that runs while building.
    sh("cargo", ["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--bins", "--target", &triple])
        .env("RUSTFLAGS", COVERAGE)
        .env("CARGO_TARGET_DIR", target().join("fuzz"))
        .run()?;
    let programs = target().join("fuzz").join(&triple).join("release");
    names.into_iter().try_for_each(|name| fuzz(&programs, name, seconds))
}

/// The targets, and the duration of each.
fn resolve(words: &[String]) -> Result<(Vec<&'static str>, u32)> {
    let (name, seconds) = match words {
        [] => (None, None),
        [word] if word.parse::<u32>().is_ok() => (None, Some(word)),
        [name] => (Some(name), None),
        [name, seconds] => (Some(name), Some(seconds)),
        _ => bail!("usage: cargo xtask fuzz [request|response|mux] [SECONDS]"),
    };
    let names: Vec<_> = TARGETS.iter().copied().filter(|it| name.is_none_or(|name| name == it)).collect();
    ensure!(!names.is_empty(), "no target `{}`: there are {}", name.map_or("", String::as_str), TARGETS.join(", "));
    let seconds = seconds.map_or(Ok(SECONDS), |it| it.parse()).context("SECONDS is a number")?;
    Ok((names, seconds))
}

/// Begins with the seeds of the repository, those written by hand and what ten minutes found, and keeps what is found now
/// beside the build: a person decides what is committed.
fn fuzz(programs: &Path, name: &str, seconds: u32) -> Result<()> {
    let found = target().join("fuzz/corpus").join(name);
    let crashes = target().join("fuzz/crashes").join(name);
    for dir in [&found, &crashes] {
        fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    }
    let seeds = root().join("fuzz/corpus").join(name);
    let earlier = seeds.with_extension("tar.gz");
    if earlier.exists() {
        sh("tar", ["-xzf".into(), earlier.display().to_string(), "-C".into(), found.display().to_string()]).run()?;
    }
    let words = [
        found.display().to_string(),
        seeds.display().to_string(),
        format!("-max_total_time={seconds}"),
        format!("-artifact_prefix={}/", crashes.display()),
        "-rss_limit_mb=512".to_owned(),
        "-timeout=10".to_owned(),
        "-print_final_stats=1".to_owned(),
        "-verbosity=1".to_owned(),
    ];
    sh(programs.join(name), words).run()
}

fn triple() -> Result<String> {
    let version = sh("rustc", ["-vV"]).read()?;
    let host = version.lines().find_map(|it| it.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say its host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_time_may_each_be_left_out() {
        for (words, expected) in [
            (&[][..], Some((TARGETS, 60))),
            (&["5"], Some((TARGETS, 5))),
            (&["mux"], Some((&["mux"][..], 60))),
            (&["request", "600"], Some((&["request"], 600))),
            (&["hum"], None),
            (&["request", "long"], None),
            (&["request", "5", "more"], None),
        ] {
            let words: Vec<String> = words.iter().map(|it| (*it).to_owned()).collect();
            let resolved = resolve(&words).ok();
            assert_eq!(resolved.as_ref().map(|(names, seconds)| (names.as_slice(), *seconds)), expected, "{words:?}");
        }
    }
}
