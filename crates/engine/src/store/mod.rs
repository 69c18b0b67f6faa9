//! Images, and their unpacked layers by digest.
//!
//! | module | content |
//! |---|---|
//! | `error` | failures |
//! | `unpack` | unpacks an archive into a directory |
//! | `tree` | visits and hashes a directory as its canonical archive |
//! | `blob`, `zstd` | compressed blobs |
//! | `configuration` | the OCI configuration |
//! | `layer`, `image`, `names` | the records on the disk |
//! | `addition` | adds layers and images |
//! | `file_sizes` | the sum of a layer's files |
//! | `query`, `removal` | finds, lists and tags images; removes them |
//! | `import`, `commit`, `export` | images from files of this machine, and back |
//! | `hold`, `garbage`, `verify` | protects images in use, collects the rest, and finds damage |
//!
//! On the disk: `layers/sha256/<digits>/`, `images/<digits>/`, `names/<name>` (a link to the image's id), `holds/` (what
//! running processes use), `tmp/` (what they create), `lock`. References are only changed under the lock, which is held
//! briefly; long work happens in `tmp/`, protected by a hold.

mod addition;
mod blob;
mod commit;
mod configuration;
mod error;
mod export;
mod file_sizes;
mod garbage;
mod hold;
mod image;
mod import;
mod layer;
mod names;
mod query;
mod refusal;
mod removal;
mod remove;
#[cfg(test)]
mod tests;
mod tree;
mod unpack;
mod verify;
mod zstd;

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

pub(crate) use addition::{Addition, LayerLimits, NewImage, NewLayer};
pub(crate) use commit::CommitSource;
pub(crate) use error::{Result, StoreError};
pub(crate) use layer::LayerRecord;
pub(crate) use refusal::LayerRefusal;

use coracle_archive::Sha256Digest;

use crate::directories::Directories;
use crate::ids::Privileges;
use crate::trash::Trash;
use tree::OverlayForm;
pub(crate) use tree::{is_dir, names, open_beneath};

/// The digest of a layer's uncompressed archive.
pub(crate) type DiffId = Sha256Digest;

/// The images of one data directory. Processes share it under locks; each change is complete or absent.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    containers: PathBuf,
    trash: Trash,
    privileges: Privileges,
}

/// The store's lock, until it is dropped.
#[derive(Debug)]
struct StoreLock(File);

impl Drop for StoreLock {
    fn drop(&mut self) {
        // Unlocked explicitly: a child that was forked meanwhile has a duplicate, which would still hold the lock.
        let _ = self.0.unlock();
    }
}

impl Store {
    /// Opens the store, creates missing parts, and removes what dead processes left.
    pub(crate) fn open(directories: &Directories, privileges: Privileges) -> io::Result<Self> {
        let trash = Trash::new(directories, &privileges);
        let it = Self { dir: directories.store(), containers: directories.containers(), trash, privileges };
        for dir in [it.layers(), it.images(), it.dir.join("names"), it.holds(), it.temporary()] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        if let Err(err) = it.repair() {
            tracing::warn!("leftovers in the image store stay for now: {err}");
        }
        Ok(it)
    }

    fn holds(&self) -> PathBuf {
        self.dir.join("holds")
    }

    /// The directory of unfinished entries, each named after the hold of the process that creates it.
    fn temporary(&self) -> PathBuf {
        self.dir.join("tmp")
    }

    /// The form of the overlay's own attributes.
    fn overlay(&self) -> OverlayForm {
        match self.privileges {
            Privileges::Root => OverlayForm::Trusted,
            Privileges::Rootless(_) => OverlayForm::User,
        }
    }

    /// Waits for a shared lock, under which no references change.
    fn share_lock(&self) -> Result<StoreLock> {
        let file = self.lock_file()?;
        file.lock_shared().map_err(StoreError::io("cannot lock the image store"))?;
        Ok(StoreLock(file))
    }

    /// Waits for the exclusive lock.
    fn lock(&self) -> Result<StoreLock> {
        let file = self.lock_file()?;
        file.lock().map_err(StoreError::io("cannot lock the image store"))?;
        Ok(StoreLock(file))
    }

    fn lock_file(&self) -> Result<File> {
        let path = self.dir.join("lock");
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        file.map_err(StoreError::io("cannot open the image store's lock"))
    }
}
