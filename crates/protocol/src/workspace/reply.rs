//! Replies to operations.

use serde::{Deserialize, Serialize};

use crate::body::Bytes;

/// The reply to an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceReply {
    /// Entries, sorted by the bytes of their names.
    Listed {
        /// The entries, up to the requested limit.
        entries: Vec<WorkspaceEntry>,
        /// Number of further entries.
        omitted: u64,
        /// Directories among all of them.
        directories: u64,
        /// Files among all of them.
        files: u64,
    },
    /// An entry.
    Found(WorkspaceEntry),
    /// Lines.
    Text(TextRange),
    /// Bytes of a file.
    Bytes {
        /// The bytes.
        content: Bytes,
        /// Their offset.
        offset: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// A file that was written.
    Written(WriteReport),
    /// What was removed.
    Removed {
        /// Number of files and links.
        files: u64,
        /// Number of directories.
        directories: u64,
        /// Whether everything was removed.
        complete: bool,
    },
    /// Files, sorted by the parts of their paths.
    Globbed {
        /// The entries, up to the requested limit.
        entries: Vec<WorkspaceEntry>,
        /// Number of further files.
        omitted: u64,
        /// Whether everything was scanned.
        complete: bool,
    },
    /// Lines, sorted by the parts of their paths, then by number.
    Grepped {
        /// The matches, up to the requested limit.
        matches: Vec<GrepMatch>,
        /// Number of further matches.
        omitted: u64,
        /// Whether everything was scanned.
        complete: bool,
    },
    /// Changes since the last scan.
    Changed(ChangeReport),
    /// All tracked files.
    Touched(Vec<TrackedFile>),
    /// Files and links, sorted by the parts of their paths.
    Summed {
        /// The entries, up to the requested limit.
        entries: Vec<FileDigest>,
        /// Where to continue, if there are more.
        after: Option<String>,
        /// Whether everything so far was scanned.
        complete: bool,
    },
    /// The size of the workspace.
    Measured {
        /// Allocated bytes on the disk.
        bytes: u64,
        /// Whether everything was scanned; otherwise the size is larger.
        complete: bool,
    },
    /// Files are staged, or moved into place.
    Staged,
    /// Records were restored.
    Recalled,
    /// The operation failed.
    Not(WorkspaceError),
}

/// An entry of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceEntry {
    /// Path relative to the workspace, as text.
    pub path: String,
    /// The kind of file; for a link to a target inside, that of the target.
    pub kind: EntryKind,
    /// Bytes; 0 if it is not a file.
    pub size: u64,
    /// Number of observed contents, from 1; 0 if it is not a file.
    pub version: u64,
    /// Modification time, in milliseconds since 1970.
    pub changed_ms: i64,
    /// Target of a link that is dangling or refers outside.
    pub target: Option<String>,
    /// Whether the path is not UTF-8.
    pub odd: bool,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A link that is dangling or refers outside.
    Symlink,
    /// A socket, pipe or device.
    Other,
}

/// Lines of a file. Only `\n` ends a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRange {
    /// The lines without their endings (`\n` or `\r\n`).
    pub lines: Vec<String>,
    /// Lines before the first one, at most those of the file.
    pub offset: u64,
    /// Number of lines of the file.
    pub total: u64,
    /// Omitted bytes of the first line, if it alone exceeds the limit.
    pub cut: u64,
    /// Bytes of the file.
    pub size: u64,
    /// The line endings.
    pub ending: LineEnding,
    /// Whether its last byte ends a line.
    pub final_newline: bool,
}

/// The line endings of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineEnding {
    /// `\n`
    Lf,
    /// `\r\n`
    Crlf,
    /// Both.
    Mixed,
    /// The file has no line ending.
    None,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteReport {
    /// The file.
    pub file: WorkspaceEntry,
    /// Whether it was created.
    pub created: bool,
    /// Whether its content changed.
    pub changed: bool,
    /// Number of replacements of an edit.
    pub replaced: u64,
    /// Whether the texts of an edit were converted to the file's line endings.
    pub adapted: bool,
    /// The first bytes of the new content, cut between characters.
    pub begin: String,
    /// Whether there is more content.
    pub more: bool,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepMatch {
    /// The file.
    pub path: String,
    /// Its number, from 1.
    pub line: u64,
    /// The text without its ending; invalid UTF-8 is replaced by U+FFFD.
    pub text: String,
    /// Whether it was cut.
    pub cut: bool,
    /// Lines before.
    pub before: Vec<String>,
    /// Lines after.
    pub after: Vec<String>,
}

/// Changed files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// Created files, sorted, up to the requested limit.
    pub created: Vec<String>,
    /// Modified files, sorted, up to the limit.
    pub modified: Vec<String>,
    /// Deleted files, sorted, up to the limit.
    pub deleted: Vec<String>,
    /// Number of all changes.
    pub total: u64,
    /// Whether everything was scanned.
    pub complete: bool,
}

/// The record of a file that was touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedFile {
    /// Path relative to the workspace.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Hex; `None` for a file of more than 8 MiB.
    pub sha256: Option<String>,
    /// Starts with 1 and increases with each observed change of content.
    pub version: u64,
    /// When it was first seen, in milliseconds since 1970.
    pub created_ms: i64,
    /// When a change was last observed, in milliseconds since 1970.
    pub updated_ms: i64,
    /// The tool that touched it last.
    pub last_tool: String,
    /// Whether it was deleted.
    pub deleted: bool,
    /// Digest of the content that a tool of this session read or wrote last, as hex: it may be overwritten without reading.
    pub seen: Option<String>,
}

/// A file or link, with a digest of its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    /// Path relative to the workspace, as text.
    pub path: String,
    /// Its kind; links are not followed, and directories are not listed.
    pub kind: EntryKind,
    /// Bytes; 0 if it is not a file.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Hex; `None` if it is not a file or cannot be read.
    pub sha256: Option<String>,
    /// Target of a link.
    pub target: Option<String>,
    /// Whether the path is not UTF-8.
    pub odd: bool,
}

/// A file to be staged, or a further piece of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// Path relative to the workspace.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Its content, or a part of it.
    pub content: Bytes,
    /// Whether the content is appended.
    pub more: bool,
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceError {
    /// The code, for programs.
    pub code: WorkspaceErrorCode,
    /// The message of the kernel or a parser, if it has more information.
    pub detail: String,
    /// Number of occurrences of an edit's old text.
    pub occurrences: u64,
    /// The first lines where it occurs.
    pub lines: Vec<u64>,
}

impl WorkspaceError {
    /// An error without details.
    #[must_use]
    pub fn from_code(code: WorkspaceErrorCode) -> Self {
        Self { code, detail: String::new(), occurrences: 0, lines: Vec::new() }
    }

    /// An error with the message of the kernel or a parser.
    #[must_use]
    pub fn with_detail(code: WorkspaceErrorCode, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..Self::from_code(code) }
    }
}

/// The kinds of errors of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceErrorCode {
    /// The path does not exist.
    NotFound,
    /// The path exists already.
    Exists,
    /// The directory is not empty.
    NotEmpty,
    /// The path refers outside.
    Escape,
    /// It is a directory.
    IsDirectory,
    /// It, or a parent, is not a directory.
    NotDirectory,
    /// It is a pipe, socket or device.
    NotRegular,
    /// It is not UTF-8 text.
    Binary,
    /// It exceeds the limit of bytes.
    TooLarge,
    /// The old text of an edit does not occur.
    NoMatch,
    /// The old text of an edit occurs more than once.
    Ambiguous,
    /// The file was not read before.
    NotSeen,
    /// The file changed since it was read.
    Stale,
    /// No space is left.
    Full,
    /// The user lacks permission.
    Denied,
    /// The file system is read-only.
    ReadOnly,
    /// The pattern is invalid.
    BadPattern,
    /// Reading or writing failed.
    Io,
    /// An error that this version does not know.
    #[serde(other)]
    Unknown,
}
