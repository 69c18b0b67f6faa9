//! Programs of the ecosystem that cargo compiles where the machine has none, and the checks of `cargo deny`.

use std::path::PathBuf;

use anyhow::Result;

use crate::sh::{Sh, sh, target, var, which};

/// A program of a crate, in the user's cache: each clone would compile it again.
///
/// It is compiled without optimisation: most of these run for seconds, and an optimised build takes minutes.
pub(crate) fn installed(name: &str, version: &str) -> Result<PathBuf> {
    let of_home = || var("HOME").map(|it| PathBuf::from(it).join(".cache"));
    let cache = var("XDG_CACHE_HOME").map(PathBuf::from).or_else(of_home);
    let tools = cache.map_or_else(|| target().join("tools"), |it| it.join("coracle-xtask"));
    let dir = tools.join(format!("{name}-{version}"));
    let program = dir.join("bin").join(name);
    if !program.is_file() {
        sh("cargo", ["install", "--locked", "--quiet", name, "--version", version, "--root"])
            .words([&dir])
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .run()?;
    }
    Ok(program)
}

fn deny(words: &[&str]) -> Result<Sh> {
    let program = which("cargo-deny").map_or_else(|| installed("cargo-deny", "0.20.2"), Ok)?;
    Ok(sh(program, ["--locked"]).words(words))
}

/// Licences, bans and sources of everything that goes into the build, by `deny.toml`.
pub(crate) fn check_dependencies() -> Result<()> {
    deny(&["check", "bans", "licenses", "sources"])?.run()?;
    // An advisory of today is no fault of the change that is checked: only a release has to wait for it.
    if let Err(error) = check_advisories() {
        println!("  {error:#}: no failure here, but one of `cargo xtask release check`");
    }
    Ok(())
}

/// Known vulnerabilities of the crates that go into the build. In CI their database has to be there.
pub(crate) fn check_advisories() -> Result<()> {
    if var("CI").is_none() && !deny(&["fetch", "db"])?.succeeds() {
        println!("  skipped: advisories, whose database cannot be fetched");
        return Ok(());
    }
    deny(&["check", "advisories"])?.run()
}
