//! Reads the host's packages directly from dpkg's database, without running a program.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// A Debian-like host.
#[derive(Debug)]
pub(super) struct DebianHost {
    /// Canonical.
    pub(super) root: PathBuf,
    pub(super) os: OsRelease,
    /// Debian's name of the architecture.
    pub(super) arch: String,
    /// The content of `status`, which packages borrow from.
    pub(super) status: String,
    pub(super) diversions: HashMap<String, Diversion>,
    /// Names in `/` that are links into `/usr`.
    pub(super) merged: Vec<&'static str>,
}

/// A diversion: a path that one package took from the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Diversion {
    pub(super) to: String,
    /// A package, or `:` for the administrator.
    pub(super) by: String,
}

/// The content of `/etc/os-release`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OsRelease {
    pub(super) id: String,
    pub(super) like: String,
    pub(super) codename: String,
    pub(super) version: String,
    pub(super) name: String,
}

const MERGED: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

impl DebianHost {
    /// Reads the system below `root`. `None` if it is not a Debian, or has no readable package database.
    pub(super) fn inspect(root: &Path) -> Option<Self> {
        let root = root.canonicalize().ok()?;
        let os = OsRelease::inspect(&root)?;
        if !os.is_debian_like() {
            return None;
        }
        let dpkg = root.join("var/lib/dpkg");
        let status = fs::read_to_string(dpkg.join("status")).ok()?;
        let arch = native_arch(&status)?.to_owned();
        let diversions = fs::read_to_string(dpkg.join("diversions")).unwrap_or_default();
        let into_usr = |name: &&str| {
            fs::read_link(root.join(name))
                .is_ok_and(|it| it.strip_prefix("/").unwrap_or(&it) == Path::new("usr").join(name))
        };
        let merged = MERGED.into_iter().filter(|it| into_usr(it)).collect();
        Some(Self { root, os, arch, status, diversions: read_diversions(&diversions), merged })
    }

    /// Resolves a path of dpkg's relative to the root, with merged directories in `usr`.
    pub(super) fn place(&self, path: &str) -> PathBuf {
        let path = path.trim_start_matches('/');
        let first = path.split('/').next().unwrap_or_default();
        let inside = path.len() > first.len();
        if inside && self.merged.contains(&first) { Path::new("usr").join(path) } else { path.into() }
    }

    /// The text of a file of the host.
    ///
    /// # Errors
    /// Missing, unreadable, not UTF-8.
    pub(super) fn read(&self, path: impl AsRef<Path>) -> io::Result<String> {
        fs::read_to_string(self.root.join(path))
    }
}

impl OsRelease {
    /// That of the system below `root`.
    pub(super) fn inspect(root: &Path) -> Option<Self> {
        // The link is absolute in some images, and would lead out of `root`.
        let text = fs::read_to_string(root.join("usr/lib/os-release"));
        text.or_else(|_| fs::read_to_string(root.join("etc/os-release"))).ok().map(|it| Self::parse(&it))
    }

    fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let found = text.lines().find_map(|it| it.strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        Self {
            id: value("ID"),
            like: value("ID_LIKE"),
            codename: value("VERSION_CODENAME"),
            version: value("VERSION_ID"),
            name: value("NAME"),
        }
    }

    /// Debian, or made from it. One without a codename (Debian's own unstable) has no name for its base.
    pub(super) fn is_debian_like(&self) -> bool {
        let named = |it: &str| !it.is_empty() && it.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        (self.id == "debian" || self.like.split(' ').any(|it| it == "debian"))
            && named(&self.id)
            && named(&self.codename)
    }
}

/// The architecture of dpkg itself is the system's own.
fn native_arch(status: &str) -> Option<&str> {
    use super::dpkg_status::{field, stanzas};
    let dpkg = stanzas(status).find(|it| field(it, "Package") == Some("dpkg"))?;
    field(dpkg, "Architecture")
}

/// Three lines each: the path, where it went, the package that took it.
fn read_diversions(text: &str) -> HashMap<String, Diversion> {
    let lines: Vec<&str> = text.lines().collect();
    let of = |it: &[&str]| (it[0].to_owned(), Diversion { to: it[1].to_owned(), by: it[2].to_owned() });
    lines.chunks_exact(3).map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debian_like_system_is_known_by_its_os_release() {
        for (text, expected) in [
            ("ID=debian\nVERSION_CODENAME=bookworm\n", true),
            ("ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n", true),
            ("ID=\"mint\"\nID_LIKE=\"ubuntu debian\"\nVERSION_CODENAME=wilma\n", true),
            ("ID=debian\n", false),
            ("ID=fedora\nVERSION_CODENAME=\"\"\n", false),
            ("ID=notdebian\nVERSION_CODENAME=x\n", false),
            ("ID=debian\nVERSION_CODENAME=../x\n", false),
            ("", false),
        ] {
            assert_eq!(OsRelease::parse(text).is_debian_like(), expected, "{text}");
        }
    }

    #[test]
    fn diversions_come_in_threes() {
        let read = read_diversions("/a\n/a.d\ndash\n/b\n/b.d\n:\n/cut\n");
        assert_eq!(read.len(), 2);
        assert_eq!(read["/b"], Diversion { to: "/b.d".into(), by: ":".into() });
    }
}
