//! Removes files that a killed guest left half-written.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat};

use super::is_temporary;

/// How far file times may lag behind the clock.
const CLOCK_LAG: Duration = Duration::from_millis(20);

/// Entries that are checked, at most, which limits the delay of one write.
const MAX_ENTRIES: usize = 10_000;

/// How many cleared directories are remembered.
const MAX_CLEARED: usize = 4096;

/// Removes temporary files of guests that were killed before they finished them.
#[derive(Debug)]
pub(crate) struct Leftovers {
    /// Nanoseconds since 1970. Older files are not of this guest.
    pub(crate) since: i128,
    /// Directories that were cleared, by device and inode.
    cleared: Mutex<HashSet<(u64, u64)>>,
}

impl Leftovers {
    /// Files of guests that ran before now.
    pub(crate) fn of_earlier_guests() -> Self {
        Self { since: nanoseconds(SystemTime::now()), cleared: Mutex::default() }
    }

    /// Removes the leftovers of a directory at the first write to it. Errors are ignored.
    pub(crate) fn clear(&self, dir: &OwnedFd) {
        let Ok(stat) = fstat(dir) else { return };
        {
            let mut cleared = self.cleared.lock().unwrap_or_else(PoisonError::into_inner);
            if cleared.len() >= MAX_CLEARED || !cleared.insert((stat.st_dev, stat.st_ino)) {
                return;
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(entries) = openat(dir, ".", flags, Mode::empty()).and_then(Dir::new) else { return };
        for entry in entries.take(MAX_ENTRIES).flatten() {
            let name = entry.file_name().to_bytes();
            if is_temporary(name) {
                remove_leftover(dir, name, self.since);
            }
        }
    }
}

/// Nanoseconds since 1970, reduced by the resolution of the file system.
pub(crate) fn nanoseconds(time: SystemTime) -> i128 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(CLOCK_LAG);
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

/// Marks a temporary file as in use, so that a guest of another container with the same directory does not remove it.
pub(super) fn mark_in_use(file: impl AsFd) {
    // On a file system without locks, only the age decides.
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Removes that mark once the file has its name, so that programs of the user can lock it.
pub(super) fn unmark(file: impl AsFd) {
    let _ = flock(file, FlockOperation::Unlock);
}

fn is_in_use(dir: &OwnedFd, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty())
        .is_ok_and(|it| flock(&it, FlockOperation::NonBlockingLockExclusive).is_err())
}

/// Removes a file or a link that was last changed before `since`, in nanoseconds since 1970.
pub(crate) fn remove_leftover(dir: &OwnedFd, name: &[u8], since: i128) {
    let Ok(stat) = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
    let changed = i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec);
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_leftover = kind.is_symlink() || kind.is_file() && !is_in_use(dir, name);
    if changed < since && is_leftover {
        let _ = unlinkat(dir, name, AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn only_older_temporary_files_are_removed_and_only_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (old, without_suffix) = (".coracle-0123456789abcdef.tmp", ".coracle-0123456789abcdef");
        let held: OwnedFd = fs::File::open(dir.path()).unwrap().into();
        let (before, later) =
            (Leftovers::of_earlier_guests(), Leftovers { since: i128::MAX, ..Leftovers::of_earlier_guests() });
        fs::write(at(old), "half").unwrap();
        let other = fs::File::create(at(".coracle-aaaaaaaaaaaaaaaa.tmp")).unwrap();
        mark_in_use(&other);
        fs::write(at(without_suffix), "user's").unwrap();
        std::os::unix::fs::symlink("nowhere", at(".coracle-fedcba9876543210.tmp")).unwrap();
        before.clear(&held);
        assert!(at(old).exists(), "it may be one of this guest's own");
        later.clear(&held);
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [without_suffix, ".coracle-aaaaaaaaaaaaaaaa.tmp"], "another guest has locked one of them");
        fs::write(at(old), "half").unwrap();
        later.clear(&held);
        assert!(at(old).exists(), "a directory is cleared only once");
    }
}
