//! `cargo xtask test`: everything, on every engine, on a machine that may have neither tools nor engines.

use std::env::join_paths;
use std::ffi::OsString;
use std::iter::once;

use anyhow::Result;

use crate::engines::{self, apt};
use crate::guest;
use crate::sh::{sh, target, var, which};

/// What the image of most tests is made of, on the fake engine too.
const IMAGE_PACKAGES: &[&str] = &["busybox-static"];

/// What tests look at or pack into an image: the host's own packages are the base where no registry answers.
const PACKAGES: &[&str] = &["bash", "ca-certificates", "curl", "git", "python3", "ripgrep", "util-linux"];

/// The client of another maker that the MCP tests talk through. Version 2 needs a newer Node than Debian has.
const INSPECTOR: &str = "@modelcontextprotocol/inspector@1.0.3";

pub(crate) fn run(words: &[String]) -> Result<()> {
    let fake_only = words.iter().any(|it| it == "--fake-only");
    let engines = if fake_only { String::new() } else { var("CORACLE_ENGINES").unwrap_or("docker,podman".to_owned()) };
    apt::ensure(IMAGE_PACKAGES)?;
    if !engines.is_empty() {
        apt::ensure(PACKAGES)?;
    }
    let path = nextest()?;
    inspector();
    for engine in engines.split(',').filter(|it| !it.is_empty()) {
        engines::up(Some(engine))?;
    }
    guest::run(&[])?;
    // Programs and tests in one build, so that features are resolved once: the tests' dependencies let the fake engine
    // start host programs, and the `coracle` that tests start has to be the one that can.
    sh("cargo", ["build", "--workspace", "--bins", "--tests"]).run()?;
    let profile = if var("CI").is_some() { "ci" } else { "default" };
    let rest = words.iter().map(String::as_str).filter(|it| *it != "--fake-only");
    sh("cargo", ["nextest", "run", "--workspace", "--profile", profile].into_iter().chain(rest))
        .env("PATH", path)
        .env("CORACLE_ENGINES", &engines)
        .env("INSTA_UPDATE", "no")
        .run()?;
    sh("cargo", ["test", "--workspace", "--doc"]).run_last()
}

/// Makes sure of cargo-nextest and gives the search path on which cargo finds it.
fn nextest() -> Result<OsString> {
    let path = var("PATH").unwrap_or_default();
    if which("cargo-nextest").is_some() {
        return Ok(path.into());
    }
    let tools = target().join("tools");
    if !tools.join("bin/cargo-nextest").is_file() {
        sh(
            "cargo",
            ["install", "--locked", "--quiet", "cargo-nextest", "--root"]
                .map(OsString::from)
                .into_iter()
                .chain(once(tools.clone().into())),
        )
        .run()?;
    }
    Ok(join_paths(once(tools.join("bin")).chain(std::env::split_paths(&path)))?)
}

/// Puts the inspector into `target/tools/node_modules/.bin/mcp-inspector`. Without it the rest is still worth running:
/// a test that needs it says so itself.
fn inspector() {
    let tools = target().join("tools");
    let name = INSPECTOR.rsplit_once('@').map_or(INSPECTOR, |(name, _)| name);
    let manifest =
        std::fs::read_to_string(tools.join("node_modules").join(name).join("package.json")).unwrap_or_default();
    let wanted = INSPECTOR.rsplit_once('@').map_or("", |(_, version)| version);
    if manifest.contains(&format!("\"version\": \"{wanted}\"")) {
        return;
    }
    let install = || {
        if which("npm").is_none() {
            apt::ensure(&["nodejs", "npm"])?;
        }
        let words = ["install", "--no-audit", "--no-fund", "--silent", INSPECTOR, "--prefix"].map(OsString::from);
        sh("npm", words.into_iter().chain(once(tools.clone().into()))).run()
    };
    if let Err(error) = std::fs::create_dir_all(&tools).map_err(Into::into).and_then(|()| install()) {
        println!("  no MCP inspector: {error:#}");
    }
}
