//! Files and directories that stand beside their target until they are complete.
//!
//! Their process holds a lock on each. One that a killed process left has no lock, and is removed when a process writes to
//! its directory for the first time.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use coracle_types::random_hex;
use rustix::fs::{FlockOperation, flock};
use tempfile::NamedTempFile;

use super::tree::{DirHandle, Node};

/// The lock comes just after the name, and earlier versions took none: something new is never taken for a leftover.
const MIN_AGE: Duration = Duration::from_secs(3600);

/// Entries of a directory that are checked, so that writing one file never waits long.
const MAX_ENTRIES: usize = 10_000;

/// A name for something unfinished, which nothing else has.
#[must_use]
pub fn name() -> String {
    format!(".coracle-{}.tmp", random_hex::<8>())
}

/// Whether it is such a name.
#[must_use]
pub fn is_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let digits = name.strip_prefix(b".coracle-").and_then(|rest| rest.strip_suffix(b".tmp"));
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(u8::is_ascii_hexdigit))
}

/// A file that only its owner reads, beside the place that it is for.
///
/// # Errors
/// When the directory cannot be written.
pub fn file_in(dir: &Path) -> io::Result<NamedTempFile> {
    if let Ok(open) = std::fs::File::open(dir) {
        sweep(&DirHandle::from(open));
    }
    let file = tempfile::Builder::new().prefix(&name()).rand_bytes(0).tempfile_in(dir)?;
    mark_in_use(file.as_file());
    Ok(file)
}

/// Marks something unfinished as in use, until it is closed or [`unmark`]ed.
pub fn mark_in_use(open: impl AsFd) {
    // Where a file system has no locks, nothing is removed either.
    let _ = flock(open, FlockOperation::NonBlockingLockExclusive);
}

/// Takes the mark off what is finished, so that other programs can lock it.
pub fn unmark(open: impl AsFd) {
    let _ = flock(open, FlockOperation::Unlock);
}

/// Removes what killed processes of this user left in a directory, once in each process. What cannot be removed stays.
pub fn sweep(dir: &DirHandle) {
    static SWEPT: LazyLock<Mutex<HashSet<(u64, u64)>>> = LazyLock::new(Mutex::default);
    let Ok(identity) = dir.identity() else { return };
    if SWEPT.lock().unwrap_or_else(PoisonError::into_inner).insert(identity) {
        sweep_older(dir, MIN_AGE);
    }
}

fn sweep_older(dir: &DirHandle, age: Duration) {
    let mut left = MAX_ENTRIES;
    let mut found = Vec::new();
    // The end of the budget ends the visit.
    let _ = dir.visit(|name, node| {
        left = left.checked_sub(1).ok_or(io::ErrorKind::Other)?;
        if is_name(&name) && matches!(node, Node::File | Node::Dir) {
            found.push((name, node));
        }
        Ok(())
    });
    for (name, node) in found {
        if dir.is_abandoned(&name, age).unwrap_or(false) {
            let removed = if node == Node::Dir { dir.remove_all(&name) } else { dir.remove(&name) };
            if let Err(err) = removed {
                tracing::debug!(%err, "a temporary file that a killed process left cannot be removed");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for left in [".coracle-0123456789abcdef.tmp", ".coracle-0123456789abcdeg.tmp", "user.tmp"] {
            fs::write(at(left), "half").unwrap();
        }
        fs::create_dir_all(at(".coracle-00000000000000aa.tmp/deep")).unwrap();
        fs::create_dir_all(at(".coracle-00000000000000bb.tmp/deep")).unwrap();
        let used_dir = File::open(at(".coracle-00000000000000bb.tmp")).unwrap();
        mark_in_use(&used_dir);
        let used = file_in(dir.path()).unwrap();
        let handle = DirHandle::from(File::open(dir.path()).unwrap());
        let names = || -> Vec<String> {
            let entries = handle.entries().unwrap();
            entries.into_iter().map(|(name, _)| name.into_string().unwrap()).collect()
        };
        assert_eq!(names().len(), 6, "all are new");
        sweep_older(&handle, Duration::ZERO);
        let used_name = used.path().file_name().unwrap().to_str().unwrap();
        let mut expected = [".coracle-00000000000000bb.tmp", ".coracle-0123456789abcdeg.tmp", used_name, "user.tmp"]
            .map(str::to_owned);
        expected.sort();
        assert_eq!(names(), expected);
        drop((used, used_dir));
        sweep_older(&handle, Duration::ZERO);
        assert_eq!(names(), [".coracle-0123456789abcdeg.tmp", "user.tmp"]);
    }
}
