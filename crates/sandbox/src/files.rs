//! Files of ours in the state directory: written whole, read whole, locked over all processes.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_runtime::host::fs::replace;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Code, Failure, Result};

/// Between two looks at a lock.
const AGAIN: Duration = Duration::from_millis(2);

/// Held until it is dropped, or its process ends.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "the open file is the lock")] File);

pub(crate) fn own_directory(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Failure::internal)
}

/// Takes a lock, waiting a while for its holder. `flock` has no waiting that an async task could abandon.
pub(crate) async fn lock(path: &Path, patience: Duration) -> Result<Lock> {
    taken(path, patience, File::try_lock).await
}

/// Takes a lock that others may share.
pub(crate) async fn lock_shared(path: &Path, patience: Duration) -> Result<Lock> {
    taken(path, patience, File::try_lock_shared).await
}

async fn taken(path: &Path, patience: Duration, take: fn(&File) -> Result<(), TryLockError>) -> Result<Lock> {
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(Failure::internal)?;
    let give_up = tokio::time::Instant::now() + patience;
    loop {
        match take(&file) {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::WouldBlock) if tokio::time::Instant::now() < give_up => tokio::time::sleep(AGAIN).await,
            Err(TryLockError::WouldBlock) => return Err(Failure::new(Code::Busy, "Another call is at work there.")),
            Err(TryLockError::Error(err)) => return Err(Failure::internal(err)),
        }
    }
}

pub(crate) fn names(dir: &Path) -> Result<Vec<PathBuf>> {
    match std::fs::read_dir(dir) {
        Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        entries => Ok(entries.map_err(Failure::internal)?.flatten().map(|it| it.path()).collect()),
    }
}

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        bytes => {
            let bytes = bytes.map_err(Failure::internal)?;
            serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|err| Failure::internal(format!("{}: {err}", path.display())))
        }
    }
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => Err(Failure::internal(err)),
        _ => Ok(()),
    }
}

/// Whole or not at all, and on the disk.
pub(crate) fn write(path: &Path, it: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(it).map_err(Failure::internal)?;
    replace(path, &text).map_err(Failure::internal)
}
