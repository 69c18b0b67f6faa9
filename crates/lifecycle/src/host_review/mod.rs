//! What a person looks at before the host acts on a directory that a container could write (containers.md 4.10,
//! security.md 5.3).
//!
//! What was protected is compared with what it was when the container was made. What could not be protected is looked for
//! when the container is gone: only what changed since it was made, by a time that nothing inside can set. Names are taken
//! in open directories, and no link is followed.

mod finding;
mod fingerprint;
mod limits;
mod scan;
mod setid;

use std::path::{Path, PathBuf};

use coracle_runtime::{Access, Mount, git_files};

pub(crate) use self::finding::MOST;
pub use self::finding::{Change, Finding, Review};
use self::limits::ScanLimits;
pub(crate) use self::setid::{SetIdReport, take_off};
use crate::record::{Fingerprint, PathFingerprint, Record};

/// Remembers what is protected beneath writable binds. What that would read too much of is known by its place alone.
pub(crate) fn watch(mounts: &[Mount], protected: &[String]) -> Vec<PathFingerprint> {
    let binds = mounts.iter().filter(|it| it.access == Access::ReadWrite && it.host.is_dir());
    let each = binds.flat_map(|bind| {
        let nested = git_files(&bind.host, protected).into_iter().filter(|it| it != ".git");
        let paths = protected.iter().cloned().chain([".git".to_owned()]).chain(nested);
        paths.map(|path| (bind.host.real().to_owned(), path))
    });
    let mut bounds = ScanLimits::new();
    let was = |(root, path): (PathBuf, String)| PathFingerprint {
        was: Fingerprint::read(&root, &path, &mut bounds).0,
        root,
        path,
    };
    each.map(was).collect()
}

/// Protected paths that lay in writable binds when the container was made: inside, each is a read-only mount. Relative to
/// their bind, in the order of the configuration.
#[must_use]
pub fn read_only_paths(record: &Record) -> Vec<String> {
    // A directory `.git` only leads to protected paths.
    let is_mounted = |it: &&PathFingerprint| it.was.is_some() && (it.path != ".git" || it.root.join(".git").is_file());
    let mut paths = Vec::new();
    for it in record.watched.iter().filter(is_mounted) {
        if !paths.contains(&it.path) {
            paths.push(it.path.clone());
        }
    }
    paths
}

/// Compares what is protected with what it was, and tells what lost a bit after it was filled. What is gone can start
/// nothing.
#[must_use]
pub fn compared(record: &Record) -> Review {
    compared_within(record, &mut ScanLimits::new())
}

fn compared_within(record: &Record, bounds: &mut ScanLimits) -> Review {
    let (mut findings, mut more) = (setuid(&record.swept), false);
    for PathFingerprint { root, path, was } in &record.watched {
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
    Review::from_findings(findings, more)
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
    fn what_is_new_is_told_however_little_may_be_read_and_what_is_not_compared_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("was")).unwrap();
        fs::write(root.join("was/a"), [b'x'; 100]).unwrap();
        let watched = |path: &str| {
            let was = Fingerprint::read(root, path, &mut ScanLimits::new()).0;
            PathFingerprint { root: root.to_owned(), path: path.to_owned(), was }
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
