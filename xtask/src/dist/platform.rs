//! The platforms of a release, each in the words of the package managers.

use anyhow::{Context as _, Result};

/// A platform that programs are built for, on a machine of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Platform {
    /// The compiler's target. Those for Linux link musl, so that the program starts on every distribution.
    pub(super) triple: &'static str,
    /// Debian's name of the architecture, which is also that of images.
    pub(super) debian: &'static str,
    pub(super) is_linux: bool,
}

pub(super) const PLATFORMS: &[Platform] = &[
    Platform { triple: "x86_64-unknown-linux-musl", debian: "amd64", is_linux: true },
    Platform { triple: "aarch64-unknown-linux-musl", debian: "arm64", is_linux: true },
    Platform { triple: "x86_64-apple-darwin", debian: "amd64", is_linux: false },
    Platform { triple: "aarch64-apple-darwin", debian: "arm64", is_linux: false },
];

impl Platform {
    /// The platform of this machine.
    pub(super) fn here() -> Result<Self> {
        let (is_linux, cpu) = (cfg!(target_os = "linux"), std::env::consts::ARCH);
        let fits = |it: &&Platform| it.is_linux == is_linux && it.triple.starts_with(cpu);
        PLATFORMS.iter().find(fits).copied().context("releases are built on Linux and macOS, on x86_64 or aarch64")
    }

    /// The directory in the archive, and the archive's name without its ending.
    pub(super) fn base(&self, version: &str) -> String {
        format!("coracle-{version}-{}", self.triple)
    }

    pub(super) fn tarball(&self, version: &str) -> String {
        format!("{}.tar.gz", self.base(version))
    }

    pub(super) fn homebrew_os(&self) -> &'static str {
        if self.is_linux { "on_linux" } else { "on_macos" }
    }

    pub(super) fn homebrew_cpu(&self) -> &'static str {
        if self.debian == "amd64" { "on_intel" } else { "on_arm" }
    }
}
