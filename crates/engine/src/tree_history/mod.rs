//! Saved states of an upper directory: checkpoints, with one copy of each version of an entry.
//!
//! | file | content |
//! |---|---|
//! | `objects/<number>` | one version of one entry, with its attributes; a directory is empty |
//! | `<number>.json` | a checkpoint: which paths have another object than in its parent |
//! | `index.json` | the object of each entry of the upper directory, as far as the entry has not changed since |
//! | `rewind.json` | the checkpoint that the upper directory is being changed to |
//!
//! **Invariant:** an object never changes. It is written before the checkpoint that names it, and removed after it.
//! **Invariant:** the index may be older than the upper directory, never wrong: it identifies a version of an entry by
//! inode and change time.

mod capture;
mod records;
mod restore;
mod rewind;
#[cfg(test)]
mod tests;
mod unchanged;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use self::capture::{CaptureRequest, Captured, capture};
pub(crate) use self::records::{CheckpointDir, StoredCheckpoint, TreeChange, changes};
pub(crate) use self::restore::{RestoreRequest, restore};
pub(crate) use self::rewind::{begin_rewind, finish_rewind, restore_tree};
pub(crate) use self::unchanged::{IndexCache, is_unchanged};
use crate::tree_copy::Fingerprint;

/// A path relative to the root, without a slash at its start. The root itself is empty.
pub(crate) type TreePath = Vec<u8>;

/// The object of each path.
pub(crate) type Tree = BTreeMap<TreePath, u64>;

/// What is known of the upper directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Index {
    /// The checkpoint that the entries describe; 0 before the first one.
    pub(crate) current: u64,
    /// The number of the last one that was saved. It is not used again.
    #[serde(default)]
    pub(crate) last: u64,
    /// Objects from this number on are not in use.
    pub(crate) next_object: u64,
    /// An upper bound of the disk space that past checkpoints need in addition to the current state.
    #[serde(default)]
    pub(crate) past_bytes: u64,
    /// Sorted by path.
    pub(crate) entries: Vec<IndexEntry>,
}

/// A version of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct IndexEntry {
    #[serde(with = "path_text")]
    pub(crate) path: TreePath,
    pub(crate) object: u64,
    pub(crate) fingerprint: Fingerprint,
    /// Whether a later change has another fingerprint.
    pub(crate) settled: bool,
}

impl Index {
    pub(crate) fn tree(&self) -> Tree {
        self.entries.iter().map(|it| (it.path.clone(), it.object)).collect()
    }
}

/// Bytes as a text of as many characters: paths need not be UTF-8.
mod path_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(path: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&path.iter().map(|byte| char::from(*byte)).collect::<String>())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.chars().map(u8::try_from).collect::<Result<_, _>>().map_err(de::Error::custom)
    }
}
