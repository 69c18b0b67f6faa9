//! Unpacked layers: `layers/sha256/<digits>/{diff,layer.json}`.

use std::io;
use std::path::{Path, PathBuf};

use coracle_types::{boot_id, parse_stored};
use serde::{Deserialize, Serialize};

use super::tree::TreeDigests;
use super::unpack::UnpackReport;
use super::{DiffId, Store};

/// The record of an unpacked layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    pub(crate) diff_id: DiffId,
    /// Bytes of the files' content.
    pub(crate) size_bytes: u64,
    /// Files, directories, links and whiteouts.
    pub(crate) entries: u64,
    /// Digests of the unpacked files.
    pub(super) digests: TreeDigests,
    /// Whether it hides all lower layers.
    #[serde(default)]
    pub(super) opaque: bool,
    /// The boot in which it was unpacked. Until an image uses it, its content may not be synced to the disk.
    pub(super) boot: String,
}

impl LayerRecord {
    pub(super) fn new(diff_id: DiffId, report: UnpackReport) -> Self {
        let UnpackReport { digests, left_out, opaque, .. } = report;
        let (size_bytes, entries) = (digests.size_bytes, digests.entries);
        if left_out > 0 {
            tracing::info!(layer = %diff_id, left_out, "device nodes, owners or attributes cannot be made here");
        }
        Self { diff_id, size_bytes, entries, digests, opaque, boot: boot_id().to_owned() }
    }

    /// Whether it was unpacked since the last boot, so that no power loss can have damaged it.
    pub(super) fn is_of_this_boot(&self) -> bool {
        !self.boot.is_empty() && self.boot == boot_id()
    }
}

/// Name of the record in a layer's directory.
pub(super) const RECORD: &str = "layer.json";
/// Name of its files' directory.
pub(super) const FILES: &str = "diff";

impl Store {
    pub(super) fn layers(&self) -> PathBuf {
        self.dir.join("layers/sha256")
    }

    pub(super) fn layer_dir(&self, diff_id: &DiffId) -> PathBuf {
        self.layers().join(diff_id.hex())
    }

    /// Reads the record of a layer. `None` if there is none. An unreadable record is damage.
    pub(super) fn layer(&self, diff_id: &DiffId) -> io::Result<Option<LayerRecord>> {
        read_json(&self.layer_dir(diff_id).join(RECORD))
    }
}

/// Reads a record of the store.
pub(super) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let bytes = match std::fs::read(path) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        done => done?,
    };
    Ok(Some(parse_stored(path, &bytes)?))
}

/// Writes a file that must survive a power loss.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
