//! Selects the files of the chosen packages.
//!
//! **Invariant:** a file of the host is packed only if an installed package lists it, and from `/etc` only
//! with its packaged content; besides these, only modules that Python compiled from packed ones.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use md5::{Digest, Md5};

use super::dependency_closure::Closure;
use super::dpkg_status::Package;
use super::host::DebianHost;
use super::tree::{Node, Tree};

/// The number of files that were left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SkippedConffiles {
    /// Configuration files that were changed on the host.
    pub(super) changed: usize,
    /// Listed, but missing, unreadable, or not where the package put them.
    pub(super) missing: usize,
}

/// Adds the files of all packages of a closure.
pub(super) fn add(tree: &mut Tree, host: &DebianHost, closure: &Closure<'_>) -> SkippedConffiles {
    for name in &host.merged {
        tree.put(name, Node::Link(Path::new("usr").join(name)));
    }
    let mut taker = Taker { tree, host, closure, genuine: HashMap::new(), left: SkippedConffiles::default() };
    for package in closure.packages.values() {
        taker.take_all(package);
    }
    let left = taker.left;
    add_compiled(tree, host);
    left
}

struct Taker<'a> {
    tree: &'a mut Tree,
    host: &'a DebianHost,
    closure: &'a Closure<'a>,
    /// Whether a directory is a real one, or is reached through a link.
    genuine: HashMap<PathBuf, bool>,
    left: SkippedConffiles,
}

impl Taker<'_> {
    fn take_all(&mut self, package: &Package<'_>) {
        let lists = [format!("{}.list", package.name), format!("{}:{}.list", package.name, package.arch)];
        let Some(list) = lists.iter().find_map(|it| self.host.read(Path::new("var/lib/dpkg/info").join(it)).ok())
        else {
            self.left.missing += 1;
            return;
        };
        for path in list.lines().filter(|it| *it != "/." && is_wanted(it)) {
            self.take(package, path);
        }
    }

    fn take(&mut self, package: &Package<'_>, path: &str) {
        let (source, target) = self.diverted(package, path);
        let (source, target) = (self.host.place(&source), self.host.place(&target));
        let real = self.host.root.join(&source);
        let Ok(meta) = fs::symlink_metadata(&real) else { return self.left.missing += 1 };
        if self.host.merged.iter().any(|it| target == Path::new(it)) {
            return;
        }
        if !self.is_genuine(source.parent().unwrap_or(Path::new(""))) {
            return self.left.missing += 1;
        }
        if meta.is_file() && !target.starts_with("usr") && !is_unmerged(&target) {
            match as_packaged(package, path, &real) {
                Some(true) => {}
                Some(false) => return self.left.changed += 1,
                None => return self.left.missing += 1,
            }
        }
        self.tree.put_new(target, Node::Host(real));
    }

    /// Returns a package's path on the host and in the base. Diversions by packages that are not in the base are
    /// undone.
    fn diverted(&self, package: &Package<'_>, path: &str) -> (String, String) {
        match self.host.diversions.get(path).filter(|it| it.by != package.name) {
            Some(it) if self.closure.packages.contains_key(it.by.as_str()) => (it.to.clone(), it.to.clone()),
            Some(it) => (it.to.clone(), path.to_owned()),
            None => (path.to_owned(), path.to_owned()),
        }
    }

    /// Whether a directory was not replaced by a link, which would lead to files that no package contains.
    fn is_genuine(&mut self, dir: &Path) -> bool {
        let real = self.host.root.join(dir);
        *self.genuine.entry(dir.to_owned()).or_insert_with(|| fs::canonicalize(&real).is_ok_and(|it| it == real))
    }
}

/// Adds modules that Python compiled from packed ones. Without root, a user could not write them, and Python would
/// compile the standard library in each run.
fn add_compiled(tree: &mut Tree, host: &DebianHost) {
    let is_module = |path: &Path| path.extension().is_some_and(|it| it == "py");
    let dirs: BTreeSet<PathBuf> =
        tree.iter().filter(|(path, _)| is_module(path)).filter_map(|(path, _)| Some(path.parent()?.into())).collect();
    for dir in dirs {
        let cache = dir.join("__pycache__");
        if !fs::symlink_metadata(host.root.join(&cache)).is_ok_and(|it| it.is_dir()) {
            continue;
        }
        for file in fs::read_dir(host.root.join(&cache)).into_iter().flatten().flatten() {
            let name = file.file_name();
            let module = name.to_str().and_then(compiled_from).map(|it| dir.join(it));
            if module.is_some_and(|it| tree.has(it)) {
                tree.put(cache.join(name), Node::Host(file.path()));
            }
        }
    }
}

/// `os.cpython-311.pyc` is compiled from `os.py`.
fn compiled_from(name: &str) -> Option<String> {
    let (module, tag) = name.strip_suffix(".pyc")?.split_once('.')?;
    tag.strip_prefix("cpython-")?.parse::<u16>().ok().map(|_| format!("{module}.py"))
}

/// Whether a file has its packaged content; `None` if it cannot be read. Only configuration files have
/// a sum in `status`, so any other file outside of `/usr` counts as changed.
fn as_packaged(package: &Package<'_>, path: &str, real: &Path) -> Option<bool> {
    let Some(conffile) = package.conffiles.iter().find(|it| it.path == path) else { return Some(false) };
    let content = fs::read(real).ok()?;
    Some(hex::encode(Md5::digest(content)) == conffile.md5)
}

/// Leaves out manuals and translations, but not licences.
fn is_wanted(path: &str) -> bool {
    const WITHOUT: [&str; 8] = ["man", "info", "locale", "lintian", "doc-base", "help", "gtk-doc", "omf"];
    let Some(shared) = path.strip_prefix("/usr/share/") else { return true };
    let (kind, rest) = shared.split_once('/').unwrap_or((shared, ""));
    match kind {
        "doc" => !rest.contains('/') || rest.ends_with("/copyright") && rest.matches('/').count() == 1,
        _ => rest.is_empty() || !WITHOUT.contains(&kind),
    }
}

/// Whether a path is of a system whose `/bin` is not a link.
fn is_unmerged(path: &Path) -> bool {
    ["bin", "sbin", "lib", "lib32", "lib64", "libx32"].iter().any(|it| path.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::{compiled_from, is_wanted};

    #[test]
    fn a_compiled_module_is_recognised_by_its_name() {
        assert_eq!(compiled_from("os.cpython-311.pyc").as_deref(), Some("os.py"));
        assert_eq!(compiled_from("os.cpython-311.opt-1.pyc"), None);
        assert_eq!(compiled_from("notes.txt"), None);
    }

    #[test]
    fn licences_are_packed_and_manuals_are_not() {
        for (path, expected) in [
            ("/usr/bin/git", true),
            ("/usr/share/doc", true),
            ("/usr/share/doc/git", true),
            ("/usr/share/doc/git/copyright", true),
            ("/usr/share/doc/git/README", false),
            ("/usr/share/doc/git/contrib", false),
            ("/usr/share/doc/git/contrib/copyright", false),
            ("/usr/share/man", true),
            ("/usr/share/man/man1/git.1.gz", false),
            ("/usr/share/locale/de/LC_MESSAGES/git.mo", false),
            ("/usr/share/manual/x", true),
            ("/etc/doc/x", true),
        ] {
            assert_eq!(is_wanted(path), expected, "{path}");
        }
    }
}
