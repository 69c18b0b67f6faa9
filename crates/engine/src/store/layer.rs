//! The record of an unpacked layer.

use serde::{Deserialize, Serialize};

use super::DiffId;

/// What is known of an unpacked layer, in `layer.json` beside its files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    pub(crate) diff_id: DiffId,
    /// Bytes of the files' content.
    pub(crate) size_bytes: u64,
    /// Files, directories, links and whiteouts.
    pub(crate) entries: u64,
    /// Device nodes that a user without root cannot make, and attributes that the file system does not take.
    pub(crate) left_out: u64,
}
