//! Work on the disk that is left after an answer, and that no caller has to wait for.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{fstat, fsync};
use tokio::time::sleep;

use crate::os::blocking::run_blocking;

/// Pause in favour of the next write. Syncing a directory takes about as long as writing a file, and a caller that
/// writes one file in it writes more.
const WRITE_PAUSE: Duration = Duration::from_millis(20);

/// Names that wait, at most: each holds two descriptors.
const MAX_PENDING: usize = 64;

/// Limit of bytes that wait to be freed: until then they are missing on a small disk.
const MAX_PENDING_BYTES: u64 = 1 << 20;

/// A name that leads to another content.
#[derive(Debug)]
pub(super) struct ReplacedFile {
    /// The directory of the name. Until it is on the disk, a crash leaves the old content or the new one, each
    /// complete: the new content was synced before it got its name.
    pub(super) dir: Option<OwnedFd>,
    /// The file that gave way. Without a name it is freed at its last close.
    pub(super) old: Option<OwnedFd>,
    /// Bytes of that file.
    pub(super) bytes: u64,
}

/// Pending syncs of answered requests.
#[derive(Debug, Default)]
pub(super) struct DeferredSync(Mutex<SyncQueue>);

#[derive(Debug, Default)]
struct SyncQueue {
    replaced: Vec<ReplacedFile>,
    /// Another task will flush the queue in a moment.
    awaited: bool,
}

impl DeferredSync {
    pub(super) fn add(&self, replaced: ReplacedFile) {
        self.waiting().replaced.push(replaced);
    }

    /// Syncs the queue, unless another task will.
    pub(super) async fn flush(&self) {
        let Some(pause) = self.pause() else { return };
        sleep(pause).await;
        let all = std::mem::take(&mut *self.waiting()).replaced;
        let _ = run_blocking(|| sync_all(all)).await;
    }

    fn pause(&self) -> Option<Duration> {
        let mut waiting = self.waiting();
        let bytes: u64 = waiting.replaced.iter().map(|it| it.bytes).sum();
        let (awaited, names) = (std::mem::replace(&mut waiting.awaited, true), waiting.replaced.len());
        match names {
            0 => {
                waiting.awaited = awaited;
                None
            }
            _ if names >= MAX_PENDING || bytes > MAX_PENDING_BYTES => Some(Duration::ZERO),
            _ => (!awaited).then_some(WRITE_PAUSE),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, SyncQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts names on the disk, each directory's at once, and frees what gave way; how many directories that were.
fn sync_all(all: Vec<ReplacedFile>) -> usize {
    let mut synced = Vec::new();
    for ReplacedFile { dir, old, .. } in all {
        let which = dir.as_ref().and_then(|it| fstat(it).ok()).map(|it| (it.st_dev, it.st_ino));
        if let (Some(dir), Some(which)) = (dir, which)
            && !synced.contains(&which)
        {
            // Some file systems sync by themselves, and an error has no recipient here: the next write fails instead.
            let _ = fsync(dir);
            synced.push(which);
        }
        drop(old);
    }
    synced.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(dir: &std::path::Path, bytes: u64) -> ReplacedFile {
        ReplacedFile { dir: Some(std::fs::File::open(dir).unwrap().into()), old: None, bytes }
    }

    #[test]
    fn a_directory_is_synced_once_for_all_that_was_written_in_it() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let gone = ReplacedFile { dir: None, old: None, bytes: 0 };
        let all = [replaced(one.path(), 0), replaced(other.path(), 0), gone, replaced(one.path(), 0)];
        assert_eq!(sync_all(all.into()), 2);
    }

    #[tokio::test]
    async fn one_settles_what_the_others_leave_in_a_moment_and_at_once_when_it_is_much() {
        let (dir, left) = (tempfile::tempdir().unwrap(), DeferredSync::default());
        let few = || left.add(replaced(dir.path(), 10));
        assert_eq!(left.pause(), None);
        few();
        assert_eq!(left.pause(), Some(WRITE_PAUSE));
        few();
        assert_eq!(left.pause(), None, "the first one does it");
        left.add(replaced(dir.path(), MAX_PENDING_BYTES));
        assert_eq!(left.pause(), Some(Duration::ZERO));
        left.flush().await;
        assert_eq!(left.pause(), None);
        (0..MAX_PENDING).for_each(|_| few());
        assert_eq!(left.pause(), Some(Duration::ZERO));
        left.flush().await;
        few();
        assert_eq!(left.pause(), Some(WRITE_PAUSE));
    }
}
