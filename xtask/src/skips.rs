//! Tests that were skipped, and why. They note it themselves: see `crates/skips`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::sh::target;

/// Reasons that hold on a machine with everything, where root runs all of it. Each is tried elsewhere: on Docker, on engines
/// without root, by a user who is not root, on a Mac.
const EXPECTED: &[&str] = &[
    "container",
    "embedded",
    "kubernetes",
    "podman-rootless",
    "embedded-rootless",
    "downloads packages",
    "needs a control group that limits processes",
    "needs a user who is not root",
    "needs a kernel that keeps no limits for a user",
    "takes minutes; CORACLE_COOK names what is built",
    "crun refuses control groups of both versions",
];

/// Skipped tests, by reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Skips(BTreeMap<String, BTreeSet<String>>);

impl Skips {
    /// Forgets those of an earlier run.
    pub(crate) fn clear() {
        let _ = fs::remove_file(file());
    }

    /// Tests that were noted since.
    pub(crate) fn noted() -> Self {
        Self::parse(&fs::read_to_string(file()).unwrap_or_default())
    }

    /// A line is a reason, a tab and the name of a test.
    fn parse(text: &str) -> Self {
        let mut skips = Self::default();
        for (reason, test) in text.lines().filter_map(|it| it.split_once('\t')) {
            skips.0.entry(reason.to_owned()).or_default().insert(test.to_owned());
        }
        skips
    }

    /// Prints how many tests were skipped for each reason.
    pub(crate) fn print(&self) {
        for (reason, tests) in &self.0 {
            let s = if tests.len() == 1 { "" } else { "s" };
            println!("skipped: {} test{s}: {reason}{}", tests.len(), remedy(reason));
        }
    }

    /// Fails when a test was skipped that runs wherever everything is.
    pub(crate) fn check(&self) -> Result<()> {
        let unexpected = self.0.iter().filter(|(reason, _)| !EXPECTED.contains(&reason.as_str()));
        let lines: Vec<String> =
            unexpected.flat_map(|(reason, tests)| tests.iter().map(move |it| format!("  {it}: {reason}"))).collect();
        if lines.is_empty() {
            return Ok(());
        }
        bail!("tests that have to run here were skipped:\n{}", lines.join("\n"))
    }
}

/// The remedy for a reason, where it is not obvious.
fn remedy(reason: &str) -> &'static str {
    match reason {
        "podman-rootless" => "; CORACLE_ENGINES=podman-rootless alone runs those below the tool",
        "container" | "embedded" | "kubernetes" => " does not do what they are about",
        "needs a container engine" | "needs docker" | "needs podman" => "; `cargo xtask test --engines` sets one up",
        "downloads packages" => "; `cargo xtask test --engines` lets it",
        it if it.starts_with("needs another engine") => "; `cargo xtask test --engines` sets up others",
        "needs strace" | "needs iptables" => "; `cargo xtask engines up embedded` installs it",
        "needs chromium" => "; `cargo xtask test --engines` installs it as root",
        "needs root and openssh-server" => "; where there is systemd, its package opens the machine for logins",
        _ => "",
    }
}

fn file() -> PathBuf {
    target().join("scenarios/skipped.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_need_not_run_here_passes_and_what_has_to_is_named() {
        let expected = Skips::parse("container\tone\npodman-rootless\ttwo\npodman-rootless\ttwo\n");
        assert_eq!(expected.0["podman-rootless"].len(), 1);
        assert!(expected.check().is_ok());
        let missing = Skips::parse("container\tone\nneeds root\tguest::it\nneeds a container engine\ttool::it\n");
        let message = missing.check().expect_err("root runs them").to_string();
        assert!(message.contains("guest::it: needs root") && message.contains("tool::it"), "{message}");
        assert!(!message.contains("one"), "{message}");
    }
}
