//! Paths, and the files at them.

use serde::{Deserialize, Serialize};

use super::UserSpec;

/// A path, and the user who accesses it. It is resolved beneath the root; `/proc`, `/sys` and `/.coracle` are not accessible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRef {
    /// The user.
    pub user: UserSpec,
    /// An absolute path.
    pub path: String,
    /// Whether a link at its end is followed.
    pub follow: bool,
}

/// The entry at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Last part of the path, as text.
    pub name: String,
    /// The kind of file.
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
    /// Target of a link.
    pub link: Option<String>,
}

impl FileEntry {
    /// Time of the last change, in seconds since 1970, if an archive can represent it.
    #[must_use]
    pub fn changed_s(&self) -> Option<u64> {
        u64::try_from(self.changed_ns / 1_000_000_000).ok().filter(|seconds| *seconds > 0)
    }
}

/// Describes the entry at a path: [`FileEntry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatFile {
    /// The path.
    pub at: FileRef,
}

/// Reads a file: [`FileEntry`], then the content as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetFile {
    /// The path.
    pub at: FileRef,
    /// Offset of the first byte.
    pub offset: u64,
    /// Limit of bytes.
    pub limit: u64,
}

/// Replaces a file atomically with the content sent as data: [`FileEntry`] when it is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutFile {
    /// The path.
    pub at: FileRef,
    /// Permission bits of a new file; an existing one retains its own, unless `exact`. `None` is 0666 without the umask.
    pub mode: Option<u32>,
    /// Whether an existing file gets `mode`, too.
    pub exact: bool,
    /// Whether missing parents are created.
    pub parents: bool,
    /// Whether an existing file is replaced.
    pub replace: bool,
}

/// Lists the entries of a directory, and whether there are more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListFiles {
    /// The directory.
    pub at: FileRef,
    /// Limit of entries.
    pub limit: u64,
}

/// Creates a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeDir {
    /// The path.
    pub at: FileRef,
    /// Permission bits.
    pub mode: u32,
    /// Whether missing parents are created; then an existing directory is not an error.
    pub parents: bool,
}

/// Creates a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeLink {
    /// The path.
    pub at: FileRef,
    /// Its target, which need not exist: 1 to 4095 bytes without a NUL.
    pub target: String,
    /// Whether an existing file or link is replaced.
    pub replace: bool,
}

/// Renames an entry within its directory; the new name must be free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameFile {
    /// The entry. A link is not followed.
    pub at: FileRef,
    /// The new name, one part of a path.
    pub name: String,
}

/// Sets the modification time of files, links and directories one by one. Errors of single entries are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetTimes {
    /// The tree that contains them.
    pub at: FileRef,
    /// Paths below the tree, empty for the tree itself, and times in seconds since 1970.
    pub changed: Vec<(String, i64)>,
}

/// Removes a file or an empty directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveFile {
    /// The path.
    pub at: FileRef,
    /// Whether a directory is removed with its content.
    pub recursive: bool,
}

/// The kind of a file.
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
