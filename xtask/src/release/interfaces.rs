//! Whether the interfaces of the crates changed more than the version allows, by cargo-semver-checks.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, ensure};

use super::{public_crates, publishable_copy};
use crate::sh::sh;
use crate::tools;

/// The version of cargo-semver-checks: it reads what rustdoc of one range of compilers writes, so that the compiler of
/// `.github/workflows/ci.yml` is raised with it.
const VERSION: &str = "0.51.0";

/// Compares the public crates with those of the last release before this commit. The first release has none before it.
pub(super) fn check(source: &Path, dir: &Path) -> Result<()> {
    let Some(tag) = last_release()? else {
        println!("  there is no earlier release: no interface is compared");
        return Ok(());
    };
    let program = tools::installed("cargo-semver-checks", VERSION)?;
    let baseline = publishable_copy(&tag, dir)?;
    let words = ["semver-checks".into(), "--baseline-root".into(), baseline.into_os_string()];
    sh(&program, words.into_iter().chain(public_crates().map(OsString::from))).dir(source).run()?;
    println!("  the interfaces changed no more since {tag} than the version says");
    Ok(())
}

/// The tag of the last release before this commit, which may be tagged itself.
fn last_release() -> Result<Option<String>> {
    let is_shallow = sh("git", ["rev-parse", "--is-shallow-repository"]).read()?;
    ensure!(is_shallow != "true", "the history is not here: git fetch --unshallow --tags");
    let tag = sh("git", ["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^"]).output()?;
    Ok(tag.status.success().then(|| String::from_utf8_lossy(&tag.stdout).trim().to_owned()))
}
