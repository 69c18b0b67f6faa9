//! Files of the state directory: written and read as a whole, locked between processes. Errors are [`Failure`]s.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{StoredFileError, parse_stored};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fs::{self, replace};
use crate::lock::Lock;

/// Creates a directory and its parents, accessible to the user only.
///
/// # Errors
/// Errors of the file system.
pub fn own_directory(dir: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Failure::internal)
}

/// Takes a lock, waiting for its holder for at most `patience`.
///
/// # Errors
/// `busy` if it is held for longer.
pub async fn lock(path: &Path, patience: Duration) -> Result<Lock> {
    taken(Lock::take(path, patience).await)
}

/// Takes a shared lock.
///
/// # Errors
/// `busy` if it is held exclusively for longer.
pub async fn lock_shared(path: &Path, patience: Duration) -> Result<Lock> {
    taken(Lock::share(path, patience).await)
}

fn taken(lock: io::Result<Option<Lock>>) -> Result<Lock> {
    lock.map_err(Failure::internal)?.ok_or_else(|| Failure::new(Code::Busy, "Another call is working there."))
}

/// Lists the paths in a directory; empty if it is missing.
///
/// # Errors
/// Errors of the file system.
pub fn names(dir: &Path) -> Result<Vec<PathBuf>> {
    match std::fs::read_dir(dir) {
        Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        entries => Ok(entries.map_err(Failure::internal)?.flatten().map(|it| it.path()).collect()),
    }
}

/// Reads a stored file. `None` if it is missing.
///
/// # Errors
/// `newer_version` for a file of a newer version; `internal` for a damaged one.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
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

/// The failure for a file that a newer version wrote.
#[must_use]
pub fn newer(message: String) -> Failure {
    Failure::new(Code::NewerVersion, message)
        .hint("use that version for it, or update this one; its record is left as it is")
}

/// Removes a file, if it exists.
///
/// # Errors
/// Errors of the file system.
pub fn remove(path: &Path) -> Result<()> {
    fs::remove(path).map_err(Failure::internal)
}

/// Replaces a file atomically, and syncs it.
///
/// # Errors
/// Errors of the file system, and values that cannot be serialised.
pub fn write(path: &Path, it: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(it).map_err(Failure::internal)?;
    replace(path, &text).map_err(Failure::internal)
}
