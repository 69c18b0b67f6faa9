//! Going through files: what is asked for, and what was met.

use serde::{Deserialize, Serialize};

use super::FileKind;
#[cfg(doc)]
use super::MAX_SESSION;
use super::body::Bytes;

/// Goes through what is below a directory, as root: files and links, never through a link, and never into what is mounted
/// there. `/proc`, `/sys` and `/.coracle` are not entered. The reply has what was met, and whether there may be more: a
/// limit was reached, or something could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRequest {
    /// The directory: an absolute path, with no link at its end.
    pub root: String,
    /// Only what was changed at this time or later, in milliseconds since 1970: content, permissions, owner or name.
    pub since_ms: Option<i64>,
    /// Names of directories that are not entered. One that begins with `/` is the path of a single one, seen from `root`.
    pub prune: Vec<String>,
    /// How far down; 1 is what is in the directory itself.
    pub depth: Option<u32>,
    /// Only what has one of these names; then directories, too.
    pub names: Option<Vec<String>>,
    /// Only files that hold one of some values.
    pub holding: Option<SecretQuery>,
    /// At most so many entries.
    pub max_entries: u64,
    /// Milliseconds after which what was met is told.
    pub within_ms: u64,
}

/// What is searched for in files: values of at least 8 bytes, in every form in which programs write them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretQuery {
    /// At most [`MAX_SESSION`] bytes.
    pub values: Vec<Bytes>,
    /// Names of the session's variables whose values are searched for, too.
    pub session: Vec<String>,
    /// Files of more bytes are not searched, and not told.
    pub max_file: u64,
}

/// What a walk met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanEntry {
    /// Its path, as text.
    pub path: String,
    /// The path has bytes that no text can say: by this one it cannot be reached.
    pub odd: bool,
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// When its content changed last, in nanoseconds since 1970.
    pub changed_ns: i64,
}
