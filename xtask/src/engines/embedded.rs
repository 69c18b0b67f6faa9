//! The embedded engine: a part of Coracle, so that nothing is started. Tests of its networks and of other users need programs.

use std::path::Path;

use anyhow::{Result, ensure};

use super::{apt, rootless};

pub(crate) const NAME: &str = "embedded";

/// The same for a person who is not root.
pub(crate) const ROOTLESS: &str = "embedded-rootless";

/// Networks without root, the mapping of subordinate ids, and kills at chosen system calls for the tests.
const PACKAGES: &[&str] = &["passt", "uidmap", "strace", "iptables"];

/// OCI runtimes. Other systems have no package of gVisor; a test of a runtime that is missing is skipped.
const RUNTIMES_OF_DEBIAN: &[&str] = &["runc", "crun", "runsc"];

pub(super) fn up() -> Result<()> {
    if apt::is_root() {
        apt::ensure(PACKAGES)?;
        if apt::Os::here().id == "debian" {
            apt::ensure(RUNTIMES_OF_DEBIAN)?;
        }
    }
    ensure!(Path::new("/proc/self/ns/user").exists(), "this system has no user namespaces");
    Ok(())
}

/// The account of rootless Podman; without root the caller is that account.
pub(super) fn up_rootless() -> Result<()> {
    up()?;
    if apt::is_root() { rootless::account().map(|_| ()) } else { Ok(()) }
}
