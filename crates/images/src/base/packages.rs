//! The first method: packages that are installed on the host.

use std::fs::File;
use std::path::Path;

use super::conffiles::SkippedConffiles;
use super::dependency_closure::{Closure, closure};
use super::dpkg_status::{Package, installed};
use super::host::DebianHost;
use super::tar_writer::{PackReport, pack};
use super::tree::Tree;
use super::{apt, certs, conffiles, rootfs};
use crate::error::BaseError;

/// Packages for agents beyond the minimal system, as far as they are installed.
pub(super) const SEEDS: [&str; 14] = [
    "jq",
    "less",
    "make",
    "netbase",
    "openssh-client",
    "procps",
    "python3-pip",
    "python3-venv",
    "ripgrep",
    "tree",
    "unzip",
    "wget",
    "xz-utils",
    "zip",
];

/// A base is unsuitable for agents without these.
pub(super) const REQUIRED: [&str; 6] = ["apt", "bash", "ca-certificates", "curl", "git", "python3"];

/// A host with suitable packages.
#[derive(Debug)]
pub(super) struct HostPackages(DebianHost);

/// Inspects the host below `root` for an engine of that architecture (Debian's name).
///
/// # Errors
/// A description of why its packages are unsuitable.
pub(super) fn inspect(root: &Path, arch: &str) -> Result<HostPackages, String> {
    let host = DebianHost::inspect(root).ok_or("this host is no Debian whose packages can be read")?;
    if host.arch != arch {
        return Err(format!("this host is {} and the engine {arch}", host.arch));
    }
    let packages = native(&host);
    if let Some(missing) = REQUIRED.iter().find(|it| !packages.iter().any(|package| package.name == **it)) {
        return Err(format!("`{missing}` is not installed on this host"));
    }
    if let Some(unmet) = chosen(&packages).unmet.first() {
        return Err(format!("packages of this host miss what they depend on ({unmet})"));
    }
    Ok(HostPackages(host))
}

impl HostPackages {
    pub(super) fn host(&self) -> &DebianHost {
        &self.0
    }

    /// Packs the base as a tar, and returns a description of its source.
    ///
    /// # Errors
    /// If the package database cannot be read or the tar cannot be written.
    pub(super) fn pack(&self, out: &File) -> Result<String, BaseError> {
        let host = self.host();
        let packages = native(host);
        let closure = chosen(&packages);
        let mut tree = Tree::default();
        let left = conffiles::add(&mut tree, host, &closure);
        let owners =
            rootfs::add(&mut tree, host, &closure).map_err(BaseError::io("read the package database of this host"))?;
        certs::add(&mut tree, host);
        apt::add(&mut tree, host);
        tree.close();
        let packed = pack(&tree, &owners, out).map_err(BaseError::io("write the tar of the base"))?;
        Ok(note(host, &closure, left, packed))
    }
}

fn native(host: &DebianHost) -> Vec<Package<'_>> {
    let mut packages = installed(&host.status);
    packages.retain(|it| it.arch == host.arch || it.arch == "all");
    packages
}

fn chosen<'p>(packages: &'p [Package<'p>]) -> Closure<'p> {
    let minimal = packages.iter().filter(|it| it.minimal).map(|it| it.name);
    closure(packages, &minimal.chain(REQUIRED).chain(SEEDS).collect::<Vec<_>>())
}

fn note(host: &DebianHost, closure: &Closure<'_>, left: SkippedConffiles, packed: PackReport) -> String {
    let version = |name| closure.packages.get(name).map_or("none", |it| upstream(it.version));
    let mut note = format!(
        "made from {} packages installed on this host ({} {}, Python {}, git {}), {} MB",
        closure.packages.len(),
        host.os.name.split(' ').next().unwrap_or_default(),
        host.os.version,
        version("python3"),
        version("git"),
        packed.bytes / 1_000_000,
    );
    for (count, what) in [
        (left.changed, "changed configuration files left out"),
        (left.missing + packed.left_out, "files could not be read"),
    ] {
        if count > 0 {
            note += &format!("; {count} {what}");
        }
    }
    note
}

/// Returns `1:2.39.5-0+deb12u3` without the epoch and Debian's revision.
fn upstream(version: &str) -> &str {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.rsplit_once('-').map_or(version, |(upstream, _)| upstream)
}

#[cfg(test)]
mod tests;
