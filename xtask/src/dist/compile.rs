//! The program of a release: optimised, static on Linux, with the guests that are there.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::platform::Platform;
use crate::engines::apt;
use crate::guest;
use crate::sh::{root, sh};

/// Builds it, after the guest and the worker of this machine. Guests of the other architecture that another machine has
/// built are taken from `target/guest`.
pub(super) fn run(platform: Platform) -> Result<PathBuf> {
    let triple = platform.triple;
    let targets = sh("rustup", ["target", "list", "--installed"]).read().unwrap_or_default();
    ensure!(targets.lines().any(|it| it == triple), "the target is missing: rustup target add {triple}");
    if platform.is_linux {
        guest::build_dist(&guest::PROGRAMS)?;
        apt::ensure(&["musl-tools"])?; // a C compiler for the target
    }
    let sources = format!("--remap-path-prefix={}=/coracle", root().display());
    let flags: Vec<String> = guest::source_flags().into_iter().chain([sources]).collect();
    // A directory of its own: cargo would put its files of profile `dist` into `target/dist`, beside those of the release.
    let dir = root().join("target/dist-build");
    let words =
        ["build", "--locked", "--profile", "dist", "--package", "coracle-cli", "--target", triple, "--target-dir"];
    sh("cargo", words).words([&dir]).env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}")).run()?;
    let program = dir.join(triple).join("dist/coracle");
    if platform.is_linux {
        let content = fs::read(&program).with_context(|| format!("read {}", program.display()))?;
        guest::ensure_static(&content).with_context(|| program.display().to_string())?;
    }
    Ok(program)
}
