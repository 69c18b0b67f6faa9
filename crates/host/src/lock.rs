//! Locks between processes: files that are never deleted.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Polling interval for a lock. A blocking `flock` could not be abandoned by an async task.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// A lock that is held until it is dropped, or its process ends.
#[derive(Debug)]
pub struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A child that was forked meanwhile has a duplicate, which would keep the lock after this one is closed.
        let _ = self.0.unlock();
    }
}

impl Lock {
    /// Takes a lock at once, if it is free.
    ///
    /// # Errors
    /// If the file cannot be opened, or its file system has no locks.
    pub fn try_take(path: &Path) -> io::Result<Option<Self>> {
        attempt(open(path)?, File::try_lock).map(Result::ok)
    }

    /// Takes a lock, waiting for at most that time. `None` if it is still held then.
    ///
    /// # Errors
    /// Those of [`try_take`](Self::try_take).
    pub async fn take(path: &Path, patience: Duration) -> io::Result<Option<Self>> {
        wait(path, patience, File::try_lock).await
    }

    /// Takes a shared lock, waiting for an exclusive holder for at most that time.
    ///
    /// # Errors
    /// Those of [`try_take`](Self::try_take).
    pub async fn share(path: &Path, patience: Duration) -> io::Result<Option<Self>> {
        wait(path, patience, File::try_lock_shared).await
    }
}

type TryLock = fn(&File) -> Result<(), TryLockError>;

async fn wait(path: &Path, patience: Duration, lock: TryLock) -> io::Result<Option<Lock>> {
    let (mut file, give_up) = (open(path)?, Instant::now() + patience);
    loop {
        match attempt(file, lock)? {
            Ok(lock) => return Ok(Some(lock)),
            Err(_) if Instant::now() >= give_up => return Ok(None),
            Err(held) => file = held,
        }
        sleep(RETRY_INTERVAL).await;
    }
}

/// Returns the lock, or the file if it is held by another.
fn attempt(file: File, lock: TryLock) -> io::Result<Result<Lock, File>> {
    match lock(&file) {
        Ok(()) => Ok(Ok(Lock(file))),
        Err(TryLockError::WouldBlock) => Ok(Err(file)),
        Err(TryLockError::Error(err)) => Err(err),
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}
