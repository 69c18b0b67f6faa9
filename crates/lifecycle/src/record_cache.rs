//! Records as they were read, for as long as their files are the same.
//!
//! To read a record takes its parse, its sum and another parse: a list of a hundred would wait for that more than for the
//! engine. A record's file is never written in place, so another inode or another time of change is another record.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::record::Record;

#[derive(Debug, Default)]
pub(crate) struct RecordCache(Mutex<BTreeMap<PathBuf, (FileStamp, Arc<Record>)>>);

/// Distinguishes a file from one that replaced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl FileStamp {
    pub(crate) fn from_metadata(meta: &Metadata) -> Self {
        let changed = (meta.ctime(), meta.ctime_nsec());
        Self { device: meta.dev(), inode: meta.ino(), bytes: meta.size(), changed }
    }
}

impl RecordCache {
    pub(crate) fn get(&self, file: &Path, stamp: FileStamp) -> Option<Arc<Record>> {
        self.all().get(file).filter(|it| it.0 == stamp).map(|it| it.1.clone())
    }

    pub(crate) fn keep(&self, file: &Path, stamp: FileStamp, record: &Arc<Record>) {
        self.all().insert(file.to_owned(), (stamp, Arc::clone(record)));
    }

    pub(crate) fn forget(&self, file: &Path) {
        self.all().remove(file);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<PathBuf, (FileStamp, Arc<Record>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
