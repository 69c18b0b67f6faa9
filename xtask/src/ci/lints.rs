//! Lints and documentation of our own crates, in the build that the tests need anyway.

use anyhow::Result;

use crate::sh::{Sh, root, sh, target};
use crate::test;

/// Cargo with `lint.sh` around the compiler of our own crates. What it builds is apart from what cargo builds alone.
pub(super) fn cargo(words: &[&str]) -> Sh {
    let wrapper = root().join("xtask/src/ci/lint.sh");
    sh("cargo", words).env("RUSTC_WORKSPACE_WRAPPER", wrapper).env("DOCUMENTATION", target().join("doc"))
}

pub(super) fn build() -> Result<()> {
    test::beside_the_clients(|| cargo(&["build", "--workspace", "--all-targets", "--locked"]).run())
}
