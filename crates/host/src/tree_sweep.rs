//! Removes temporary files of killed processes.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use super::temporary::is_name;
use super::tree::{DirHandle, Node};

/// A file is locked just after it is created, and earlier versions did not lock: new files are never removed.
const MIN_AGE: Duration = Duration::from_secs(3600);

/// Maximum number of checked entries, so that writing one file never waits long.
const MAX_ENTRIES: usize = 10_000;

/// Like [`sweep`], for a path; does nothing if it cannot be opened.
pub fn sweep_path(dir: &Path) {
    if let Ok(open) = File::open(dir) {
        sweep(&DirHandle::from(open));
    }
}

/// Removes temporary files of this user's killed processes from a directory, once per process. Errors are only logged.
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
    // The visit ends when the maximum is reached.
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
                tracing::debug!(%err, "cannot remove a temporary file of a killed process");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::temporary::{file_in, mark_in_use};

    #[test]
    fn only_files_of_killed_processes_are_removed() {
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
