//! Finds out at little cost that a tree is as it was.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, fstatfs, lstat, statat};

use super::{CheckpointDir, Index};
use crate::tree_copy::Fingerprint;

/// Maximum number of entries of all indexes in memory: some 30 MB.
const MAX_ENTRIES: usize = 200_000;

/// Of `tmpfs`, from the kernel's `linux/magic.h`.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Whether a tree is as its index has it. `false` also means that the content of a file has to be compared. A new entry
/// shows by its directory, which has another change time.
pub(crate) fn is_unchanged(upper: &Path, known: &Index) -> io::Result<bool> {
    let upper = File::open(upper)?;
    // A write through shared memory changes no time there.
    if fstatfs(&upper)?.f_type == TMPFS_MAGIC {
        return Ok(false);
    }
    Ok(known.entries.iter().all(|it| {
        let path = if it.path.is_empty() { b"." } else { it.path.as_slice() };
        let found = statat(&upper, path, AtFlags::SYMLINK_NOFOLLOW);
        it.settled && found.is_ok_and(|found| Fingerprint::new(&found) == it.fingerprint)
    }))
}

/// The indexes that this process has read, so that a call that changes no file reads none again.
#[derive(Debug, Default)]
pub(crate) struct IndexCache(Mutex<Vec<CachedIndex>>);

#[derive(Debug)]
struct CachedIndex {
    path: PathBuf,
    /// Of the file: each index is written to a new one.
    version: Fingerprint,
    index: Arc<Index>,
}

impl IndexCache {
    /// Reads the index of a directory, unless it is known. `None` before the first checkpoint.
    pub(crate) fn read(&self, dir: &CheckpointDir) -> io::Result<Option<Arc<Index>>> {
        let path = dir.index_file();
        let version = match lstat(&path) {
            Ok(found) => Fingerprint::new(&found),
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(err) => return Err(err.into()),
        };
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = cached.iter().position(|it| it.path == path) {
            let last = cached.remove(at);
            if last.version == version {
                let index = last.index.clone();
                cached.push(last);
                return Ok(Some(index));
            }
        }
        drop(cached);
        // If another process replaces the file meanwhile, the next call sees another version.
        let index = Arc::new(dir.index()?);
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.push(CachedIndex { path, version, index: index.clone() });
        while cached.iter().map(|it| it.index.entries.len()).sum::<usize>() > MAX_ENTRIES {
            cached.remove(0);
        }
        drop(cached);
        Ok(Some(index))
    }
}
