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

impl FileEntry {
    /// Time of the last change, in seconds since 1970, if it is one that an archive can hold.
    #[must_use]
    pub fn changed_s(&self) -> Option<u64> {
        u64::try_from(self.changed_ns / 1_000_000_000).ok().filter(|seconds| *seconds > 0)
    }
}

/// What is at a path: [`FileEntry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatFile {
    /// Which.
    pub at: FileRef,
}

/// [`FileEntry`], then the content as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetFile {
    /// Of what.
    pub at: FileRef,
    /// From this byte on.
    pub offset: u64,
    /// At most so many bytes.
    pub limit: u64,
}

/// Writes a file whole, from data: [`FileEntry`] when it is in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutFile {
    /// Where.
    pub at: FileRef,
    /// Permission bits of a new file; an existing one keeps its own, unless `exact`. `None` is 0666 without the umask.
    pub mode: Option<u32>,
    /// A file that is there gets `mode`, too.
    pub exact: bool,
    /// Make missing parents.
    pub parents: bool,
    /// Replace a file that is there.
    pub replace: bool,
}

/// The entries of a directory, and whether there are more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListFiles {
    /// Which directory.
    pub at: FileRef,
    /// At most so many entries.
    pub limit: u64,
}

/// Makes a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeDir {
    /// Where.
    pub at: FileRef,
    /// Permission bits.
    pub mode: u32,
    /// Make missing parents; one that is there already is no error.
    pub parents: bool,
}

/// Makes a symbolic link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeLink {
    /// Where.
    pub at: FileRef,
    /// What it says, which need not be there: 1 to 4095 bytes without a NUL.
    pub target: String,
    /// Replace a file or a link that is there.
    pub replace: bool,
}

/// Gives what is there another name in the same directory, which has to be free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenameFile {
    /// What. A link is renamed itself.
    pub at: FileRef,
    /// One part of a path.
    pub name: String,
}

/// Sets the time of the last change of files, links and directories, one after the other. What cannot be changed keeps its
/// own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetTimes {
    /// The tree that they are in.
    pub at: FileRef,
    /// Paths below the tree, empty for the tree itself, and times in seconds since 1970.
    pub changed: Vec<(String, i64)>,
}

/// Removes a file or an empty directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoveFile {
    /// What.
    pub at: FileRef,
    /// With all that is in it.
    pub recursive: bool,
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
