//! Locks between processes: files that are never deleted.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::{Error, Result, StoreError};

/// A lock that is held until it is dropped, or its process ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

/// A caller waits this long before it is told `busy`.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often a held lock is tried. `flock` has no waiting that an async task could abandon.
const AGAIN: Duration = Duration::from_millis(5);

impl Lock {
    /// Takes a lock, waiting a while for its holder.
    pub(crate) async fn take(path: &Path, name: &str) -> Result<Self> {
        Self::take_within(path, name, PATIENCE).await
    }

    /// As [`take`](Self::take), with another patience.
    pub(crate) async fn take_within(path: &Path, name: &str, patience: Duration) -> Result<Self> {
        Self::wait(path, (name, patience), File::try_lock).await
    }

    async fn wait(
        path: &Path,
        (name, patience): (&str, Duration),
        attempt: fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Self> {
        let file = open(path)?;
        let give_up = Instant::now() + patience;
        loop {
            match attempt(&file) {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::WouldBlock) if Instant::now() < give_up => sleep(AGAIN).await,
                Err(TryLockError::WouldBlock) => return Err(Error::Busy { name: name.to_owned() }),
                Err(TryLockError::Error(source)) => return Err(StoreError::io(path)(source).into()),
            }
        }
    }

    /// Takes a lock together with others who share it, waiting a while for one who does not.
    pub(crate) async fn share(path: &Path, name: &str) -> Result<Self> {
        Self::wait(path, (name, PATIENCE), File::try_lock_shared).await
    }

    /// Takes a lock that nobody holds.
    pub(crate) fn try_take(path: &Path) -> Result<Option<Self>, StoreError> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(StoreError::io(path)(source)),
        }
    }
}

fn open(path: &Path) -> Result<File, StoreError> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.open(path).map_err(StoreError::io(path))
}
