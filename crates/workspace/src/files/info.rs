//! Information about a file.

use coracle_protocol::workspace::{EntryKind, WorkspaceEntry};
use schemars::JsonSchema;
use serde::Serialize;

use crate::paths::{PathCharset, is_addressable, shown};

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileInfo {
    /// Its path, which can be passed back as it is.
    pub path: String,
    /// `file`, `directory`, `symlink` (leading nowhere or outside) or `other`.
    #[schemars(with = "String")]
    pub kind: EntryKind,
    /// Bytes; of a file.
    pub size_bytes: Option<u64>,
    /// How often it was seen to change; of a file.
    pub version: Option<u64>,
    /// When its content changed last; of a file.
    pub updated_at: Option<String>,
    /// What a link says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// False for a name that no path can say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addressable: Option<bool>,
}

impl FileInfo {
    pub(crate) fn from_entry(item: &WorkspaceEntry, charset: PathCharset) -> Self {
        let is_file = item.kind == EntryKind::File;
        let addressable = !item.odd && is_addressable(&item.path, charset);
        Self {
            path: shown(&item.path),
            kind: item.kind,
            size_bytes: is_file.then_some(item.size),
            version: is_file.then_some(item.version),
            updated_at: is_file.then(|| shown_time(item.changed_ms)),
            target: item.target.clone(),
            addressable: (!addressable).then_some(false),
        }
    }

    pub(crate) fn line(&self) -> String {
        let (path, size) = (&self.path, self.size_bytes.unwrap_or_default());
        match self.kind {
            EntryKind::File => {
                let (version, time) =
                    (self.version.unwrap_or_default(), self.updated_at.as_deref().unwrap_or_default());
                format!("FILE {path} ({})", versioned(size, version, time))
            }
            EntryKind::Directory => format!("DIR  {path}/"),
            EntryKind::Symlink => format!("LINK {path} -> {}", self.target.as_deref().unwrap_or_default()),
            EntryKind::Other => format!("OTHER {path}"),
        }
    }
}

/// `12 B, v1, updated 2026-01-02T03:04:05.678Z`
pub(crate) fn versioned(size: u64, version: u64, time: &str) -> String {
    format!("{size} B, v{version}, updated {time}")
}

/// RFC 3339, UTC, milliseconds.
pub(crate) fn shown_time(ms: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    format!("{time:.3}")
}
