//! Finds changes that a user should review before the host uses a directory that a container could write to.
//!
//! Compares protected paths with their state when the container was created, and also paths that commands inside have
//! to write (`Guard::Reviewed`). Git directories are searched at each review, all other directories after the container
//! was removed. That search is limited to files changed since the creation, by a time that nothing inside can set. It
//! opens directories one by one and follows no link.

mod finding;
mod fingerprint;
mod limits;
mod scan;
mod setid;

use std::path::{Path, PathBuf};

use coracle_runtime::{Access, Mount, git_dirs, git_files, guarded_paths};

pub(crate) use self::finding::MOST;
pub use self::finding::{Change, Finding, Review};
use self::limits::ScanLimits;
pub(crate) use self::setid::{SetIdReport, take_off};
use crate::protected_paths;
use crate::record::{Fingerprint, PathFingerprint, Record};

const GIT: &str = ".git";

/// A file in its place names another repository.
const JJ_REPOSITORY: &str = ".jj/repo";

/// Fingerprints protected paths below writable binds. A path that is too large to read is only recorded as existing.
pub(crate) fn fingerprint_paths(mounts: &[Mount], protected: &[String]) -> Vec<PathFingerprint> {
    let reviewed = protected_paths::reviewed(protected);
    let mut limits = ScanLimits::new();
    let mut watched = Vec::new();
    for bind in mounts.iter().filter(|mount| mount.access == Access::ReadWrite && mount.host.is_dir()) {
        let root = bind.host.real();
        let git_dirs = git_dirs(&bind.host, protected);
        let pointers = git_files(&bind.host, protected).into_iter().filter(|path| path != GIT);
        let always = [GIT, JJ_REPOSITORY].map(str::to_owned);
        let read_only = guarded_paths(root, &git_dirs, protected).into_iter().chain(always).chain(pointers);
        let paths = read_only.map(|path| (path, false));
        let writable = guarded_paths(root, &git_dirs, &reviewed).into_iter().map(|path| (path, true));
        for (path, writable) in paths.chain(writable) {
            let was = Fingerprint::read(root, &path, &mut limits).0;
            watched.push(PathFingerprint { root: root.to_owned(), path, was, writable });
        }
    }
    watched
}

/// Protected paths that lay in writable binds when the container was created: inside, each is a read-only mount.
/// Relative to their bind, in the order of the configuration. Placeholders are among them.
#[must_use]
pub fn read_only_paths(record: &Record) -> Vec<String> {
    // A directory `.git` or `.jj/repo` only leads to protected paths.
    let is_mounted = |it: &&PathFingerprint| {
        let is_pointer = it.path == GIT || it.path == JJ_REPOSITORY;
        !it.writable && it.was.is_some() && (!is_pointer || it.root.join(&it.path).is_file())
    };
    let mut paths = Vec::new();
    for it in record.watched.iter().filter(is_mounted) {
        if !paths.contains(&it.path) {
            paths.push(it.path.clone());
        }
    }
    paths
}

/// Compares protected paths with their earlier state, and reports files that lost a set-id bit after provisioning. A
/// deleted file is not reported, since it cannot be started.
#[must_use]
pub fn compared(record: &Record) -> Review {
    compared_within(record, &mut ScanLimits::new())
}

fn compared_within(record: &Record, bounds: &mut ScanLimits) -> Review {
    let (mut findings, mut more) = (setuid(&record.swept), false);
    for PathFingerprint { root, path, was, .. } in &record.watched {
        let change = match was {
            // What is new can be made as large as one likes, and nothing in it is compared.
            None => Fingerprint::is_there(root, path).then_some(Change::New),
            Some(was) => {
                let (now, cut) = Fingerprint::read(root, path, bounds);
                more |= cut || !was.was_read();
                now.and_then(|now| was.change_to(&now, cut))
            }
        };
        findings.extend(change.map(|change| Finding { path: root.join(path), change }));
    }
    for root in writable(record) {
        let (found, cut) = scan::walk_git(root, record.created, bounds);
        findings.extend(found.into_iter().filter(|it| it.change != Change::Submodule || !is_guarded(record, &it.path)));
        more |= cut;
    }
    Review::from_findings(findings, more)
}

/// Whether the submodule at that path is what it was: its `.git` was read-only, or it has none.
fn is_guarded(record: &Record, submodule: &Path) -> bool {
    let git = submodule.join(GIT);
    git.symlink_metadata().is_err()
        || record.watched.iter().any(|it| it.was.is_some() && it.root.join(&it.path).starts_with(&git))
}

/// The same, and what a walk through all that could be written finds. The container is gone.
pub(crate) fn looked_through(record: &Record, swept: &SetIdReport) -> Review {
    let mut bounds = ScanLimits::new();
    let Review { mut findings, mut more } = compared_within(record, &mut bounds);
    more |= swept.cut;
    findings.extend(setuid(&swept.paths));
    for root in writable(record) {
        let (found, cut) = scan::walk(root, record.created, &mut bounds);
        findings.extend(found);
        more |= cut;
    }
    Review::from_findings(findings, more)
}

/// What was swept just now, of a container that is there.
pub(crate) fn of_swept(swept: &SetIdReport) -> Review {
    Review::from_findings(setuid(&swept.paths), swept.cut)
}

fn setuid(paths: &[PathBuf]) -> Vec<Finding> {
    paths.iter().map(|path| Finding { path: path.clone(), change: Change::Setuid }).collect()
}

/// Host directories that code inside could write to.
pub(crate) fn writable(record: &Record) -> impl Iterator<Item = &Path> {
    let writable = record.mounts.iter().filter(|it| it.mode == Access::ReadWrite);
    writable.map(|it| it.host.as_path()).filter(|it| it.is_dir())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::record::tests::record;

    #[test]
    fn new_paths_are_reported_under_any_limit_and_uncompared_ones_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("was")).unwrap();
        fs::write(root.join("was/a"), [b'x'; 100]).unwrap();
        let watched = |path: &str| {
            let was = Fingerprint::read(root, path, &mut ScanLimits::new()).0;
            PathFingerprint { root: root.to_owned(), path: path.to_owned(), was, writable: false }
        };
        let record = Record { watched: ["was", "large", "late"].map(watched).into(), ..record("web") };
        let swept = Record { swept: vec![root.join("tool")], ..super::super::record::tests::record("web") };
        assert_eq!(compared(&swept).findings, [Finding { path: root.join("tool"), change: Change::Setuid }]);
        fs::create_dir(root.join("large")).unwrap();
        fs::write(root.join("large/b"), [b'x'; 1000]).unwrap();
        fs::write(root.join("late"), "").unwrap();
        let new = ["large", "late"].map(|it| Finding { path: root.join(it), change: Change::New });
        let compared = |mut bounds| {
            let review = compared_within(&record, &mut bounds);
            (review.findings, review.more)
        };
        // Enough for what was there, and not for what is new.
        assert_eq!(compared(ScanLimits { bytes: 500, ..ScanLimits::new() }), (new.to_vec(), false));
        assert_eq!(compared(ScanLimits { bytes: 50, ..ScanLimits::new() }), (new.to_vec(), true));
        assert_eq!(
            compared(ScanLimits { until: std::time::Instant::now(), ..ScanLimits::new() }),
            (new.to_vec(), true)
        );
    }
}
