//! Files of ours in the state directory: written whole, read whole, locked over all processes.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_runtime::host::fs::replace;
pub(crate) use coracle_runtime::host::lock::Lock;
use coracle_runtime::{StoredFileError, parse_stored};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Code, Failure, Result};

pub(crate) fn own_directory(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Failure::internal)
}

/// Takes a lock, waiting a while for its holder.
///
/// # Errors
/// `busy` when it is held for longer.
pub(crate) async fn lock(path: &Path, patience: Duration) -> Result<Lock> {
    taken(Lock::take(path, patience).await)
}

/// Takes a lock that others may share.
///
/// # Errors
/// `busy` when it is held alone for longer.
pub(crate) async fn lock_shared(path: &Path, patience: Duration) -> Result<Lock> {
    taken(Lock::share(path, patience).await)
}

fn taken(lock: io::Result<Option<Lock>>) -> Result<Lock> {
    lock.map_err(Failure::internal)?.ok_or_else(|| Failure::new(Code::Busy, "Another call is at work there."))
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
        bytes => parse_stored(path, &bytes.map_err(Failure::internal)?).map(Some).map_err(unreadable),
    }
}

fn unreadable(err: StoredFileError) -> Failure {
    match &err {
        StoredFileError::Newer(file) => newer(err.to_string()).detail("file", file),
        StoredFileError::Damaged { .. } => Failure::internal(err),
    }
}

/// What a newer version wrote stays as it is.
pub(crate) fn newer(message: String) -> Failure {
    Failure::new(Code::NewerVersion, message)
        .hint("use that version for it, or update this one; its record is left as it is")
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<()> {
    coracle_runtime::host::fs::remove(path).map_err(Failure::internal)
}

/// Replaces a file atomically, and syncs it.
pub(crate) fn write(path: &Path, it: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(it).map_err(Failure::internal)?;
    replace(path, &text).map_err(Failure::internal)
}
