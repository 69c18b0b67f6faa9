//! Disk operations that are deferred until the reply is sent, so that no caller waits for them.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{fstat, fsync};
use tokio::time::sleep;

use crate::os::blocking::run_blocking;

/// Delay for further writes. Syncing a directory takes about as long as writing a file, and a caller that writes one file
/// in it often writes more.
const WRITE_PAUSE: Duration = Duration::from_millis(20);

/// Limit of pending names: each holds two descriptors.
const MAX_PENDING: usize = 64;

/// Limit of bytes to be freed: until then they reduce the free space of a small disk.
const MAX_PENDING_BYTES: u64 = 1 << 20;

/// A name that refers to new content.
#[derive(Debug)]
pub(super) struct ReplacedFile {
    /// The directory of the name. Until the name is on the disk, a crash leaves the old or the new content, each complete:
    /// the new content was synced before it got its name.
    pub(super) dir: Option<OwnedFd>,
    /// The replaced file. It has no name, and its space is freed when it is closed.
    pub(super) old: Option<OwnedFd>,
    /// Bytes of that file.
    pub(super) bytes: u64,
}

/// Pending syncs of requests that were replied to.
#[derive(Debug, Default)]
pub(super) struct DeferredSync(Mutex<SyncQueue>);

#[derive(Debug, Default)]
struct SyncQueue {
    replaced: Vec<ReplacedFile>,
    /// Whether another task will flush the queue in a moment.
    scheduled: bool,
}

impl DeferredSync {
    pub(super) fn add(&self, replaced: ReplacedFile) {
        self.queue().replaced.push(replaced);
    }

    /// Syncs the queue, unless another task will.
    pub(super) async fn flush(&self) {
        let Some(pause) = self.pause() else { return };
        sleep(pause).await;
        let all = std::mem::take(&mut *self.queue()).replaced;
        let _ = run_blocking(|| sync_all(all)).await;
    }

    fn pause(&self) -> Option<Duration> {
        let mut queue = self.queue();
        let bytes: u64 = queue.replaced.iter().map(|it| it.bytes).sum();
        let (scheduled, names) = (std::mem::replace(&mut queue.scheduled, true), queue.replaced.len());
        match names {
            0 => {
                queue.scheduled = scheduled;
                None
            }
            _ if names >= MAX_PENDING || bytes > MAX_PENDING_BYTES => Some(Duration::ZERO),
            _ => (!scheduled).then_some(WRITE_PAUSE),
        }
    }

    fn queue(&self) -> MutexGuard<'_, SyncQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Syncs the directory of each name once, and closes the replaced files. Returns the number of synced directories.
fn sync_all(all: Vec<ReplacedFile>) -> usize {
    let mut synced = Vec::new();
    for ReplacedFile { dir, old, .. } in all {
        let id = dir.as_ref().and_then(|it| fstat(it).ok()).map(|it| (it.st_dev, it.st_ino));
        if let (Some(dir), Some(id)) = (dir, id)
            && !synced.contains(&id)
        {
            // Some file systems need no sync. An error cannot be reported here; the next write fails instead.
            let _ = fsync(dir);
            synced.push(id);
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
    fn a_directory_is_synced_once_for_all_its_written_files() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let no_dir = ReplacedFile { dir: None, old: None, bytes: 0 };
        let all = [replaced(one.path(), 0), replaced(other.path(), 0), no_dir, replaced(one.path(), 0)];
        assert_eq!(sync_all(all.into()), 2);
    }

    #[tokio::test]
    async fn one_task_flushes_for_all_and_without_delay_if_much_is_pending() {
        let (dir, deferred) = (tempfile::tempdir().unwrap(), DeferredSync::default());
        let few = || deferred.add(replaced(dir.path(), 10));
        assert_eq!(deferred.pause(), None);
        few();
        assert_eq!(deferred.pause(), Some(WRITE_PAUSE));
        few();
        assert_eq!(deferred.pause(), None, "the first task flushes");
        deferred.add(replaced(dir.path(), MAX_PENDING_BYTES));
        assert_eq!(deferred.pause(), Some(Duration::ZERO));
        deferred.flush().await;
        assert_eq!(deferred.pause(), None);
        (0..MAX_PENDING).for_each(|_| few());
        assert_eq!(deferred.pause(), Some(Duration::ZERO));
        deferred.flush().await;
        few();
        assert_eq!(deferred.pause(), Some(WRITE_PAUSE));
    }
}
