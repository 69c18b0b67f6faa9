//! Scans of directories.

use serde::{Deserialize, Serialize};

use super::FileKind;
#[cfg(doc)]
use super::MAX_SESSION;
use super::body::Bytes;

/// Scans a directory as root: files and links, without following links or entering mounts. `/proc`, `/sys` and `/.coracle`
/// are not entered. The reply has the entries, and whether there may be more: a limit was reached, or an entry could not be
/// read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRequest {
    /// The directory: an absolute path that does not end in a link.
    pub root: String,
    /// Only entries changed at this time or later, in milliseconds since 1970: content, permissions, owner or name.
    pub since_ms: Option<i64>,
    /// Names of directories that are not entered. A value that begins with `/` is the path of a single one, relative to `root`.
    pub prune: Vec<String>,
    /// Greatest depth; 1 is the directory itself.
    pub depth: Option<u32>,
    /// Only entries with one of these names; then also directories.
    pub names: Option<Vec<String>>,
    /// Only files that contain one of some values.
    pub holding: Option<SecretQuery>,
    /// Limit of entries.
    pub max_entries: u64,
    /// Limit of the duration in milliseconds, after which the entries so far are returned.
    pub within_ms: u64,
}

/// Values to search for in files: at least 8 bytes each, in every encoding that programs use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretQuery {
    /// At most [`MAX_SESSION`] bytes.
    pub values: Vec<Bytes>,
    /// Names of session variables whose values are searched for, too.
    pub session: Vec<String>,
    /// Larger files, in bytes, are not searched and not reported.
    pub max_file: u64,
}

/// An entry found by a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanEntry {
    /// Its path, as text.
    pub path: String,
    /// Whether the path is not UTF-8: `path` has replacement characters, and cannot be used to access the file.
    pub odd: bool,
    /// The kind of file.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Modification time, in nanoseconds since 1970.
    pub changed_ns: i64,
}
