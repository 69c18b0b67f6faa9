//! Locks that serialise changes of one file.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::fstat;

use crate::files::error::OperationResult;
use crate::files::resolve::ResolvedPath;

/// A name in a directory, since a replaced file has another inode but the same name.
pub(super) type FileKey = (u64, u64, Vec<u8>);

/// Names of files that are being changed.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<FileKey, Arc<Mutex<()>>>>);

impl Locks {
    /// Runs `act` while no other request changes a file of that name.
    pub(super) fn with<T>(&self, key: FileKey, act: impl FnOnce() -> T) -> T {
        let own = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()).or_default().clone();
        let _guard = LockGuard { locks: self, key };
        let _held = own.lock().unwrap_or_else(PoisonError::into_inner);
        act()
    }
}

impl ResolvedPath {
    pub(super) fn key(&self) -> OperationResult<FileKey> {
        let dir = fstat(&self.dir)?;
        Ok((dir.st_dev, dir.st_ino, self.name.clone()))
    }
}

struct LockGuard<'a> {
    locks: &'a Locks,
    key: FileKey,
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        let mut all = self.locks.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The references of the table and of this caller.
        if all.get(&self.key).is_some_and(|it| Arc::strong_count(it) <= 2) {
            all.remove(&self.key);
        }
    }
}
