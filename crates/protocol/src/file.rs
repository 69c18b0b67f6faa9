//! A path, and what is there.

use serde::{Deserialize, Serialize};

use super::UserSpec;

/// A path, and who asks for it. It is resolved beneath the root; `/proc`, `/sys` and `/.coracle` are not reachable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// As whom.
    pub user: UserSpec,
    /// An absolute path.
    pub path: String,
    /// What a link at its end leads to, not the link itself.
    pub follow: bool,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Last part of the path, as text.
    pub name: String,
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last change, in nanoseconds since 1970.
    pub changed_ns: i64,
    /// Where a link leads.
    pub link: Option<String>,
}

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Link,
    /// A socket, pipe or device.
    Special,
}
