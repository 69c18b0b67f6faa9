//! What comes back.

use serde::{Deserialize, Serialize};

use crate::body::Bytes;

/// What came of an act.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceReply {
    /// Entries, sorted by the bytes of their names.
    Listed {
        /// At most as many as were asked for.
        entries: Vec<WorkspaceEntry>,
        /// How many more there are.
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
    /// A piece of a file.
    Bytes {
        /// Its bytes.
        content: Bytes,
        /// Where it begins.
        offset: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// A file that was written.
    Written(WriteReport),
    /// Something that is gone.
    Removed {
        /// Files and links.
        files: u64,
        /// Directories.
        directories: u64,
        /// Whether all of it is gone.
        complete: bool,
    },
    /// Files, sorted by the parts of their paths.
    Globbed {
        /// At most as many as were asked for.
        entries: Vec<WorkspaceEntry>,
        /// How many more were met.
        omitted: u64,
        /// Everything was met.
        complete: bool,
    },
    /// Lines, sorted by the parts of their paths, then by number.
    Grepped {
        /// At most as many as were asked for.
        matches: Vec<GrepMatch>,
        /// How many more were met.
        omitted: u64,
        /// Everything was met.
        complete: bool,
    },
    /// What changed.
    Changed(ChangeReport),
    /// All that is remembered.
    Touched(Vec<TrackedFile>),
    /// Files and links, sorted by the parts of their paths.
    Summed {
        /// At most as many as were asked for.
        entries: Vec<FileDigest>,
        /// Where the next ones begin, if there are more.
        after: Option<String>,
        /// Everything so far was met.
        complete: bool,
    },
    /// How much there is.
    Measured {
        /// Bytes on the disk.
        bytes: u64,
        /// Everything was met; else there is more.
        complete: bool,
    },
    /// It is staged, or in place.
    Staged,
    /// It is remembered.
    Recalled,
    /// It was not done.
    Not(WorkspaceError),
}

/// An entry of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceEntry {
    /// From the workspace, as text.
    pub path: String,
    /// What it is. A link that leads inside is what it leads to.
    pub kind: EntryKind,
    /// Bytes; 0 for what is no file.
    pub size: u64,
    /// How often it was seen to change, from 1; 0 for what is no file.
    pub version: u64,
    /// When its content changed last, in milliseconds since 1970.
    pub changed_ms: i64,
    /// What a link says that leads nowhere or outside.
    pub target: Option<String>,
    /// Its path has bytes that no text can say.
    pub odd: bool,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A link that leads nowhere or outside.
    Symlink,
    /// A socket, pipe or device.
    Other,
}

/// Lines of a file. They end at `\n` and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextRange {
    /// Without their ends (`\n` or `\r\n`).
    pub lines: Vec<String>,
    /// Lines before the first one; at most as many as there are.
    pub offset: u64,
    /// Lines of the file.
    pub total: u64,
    /// Bytes of the first line that were left out, when it alone has too many.
    pub cut: u64,
    /// Bytes of the file.
    pub size: u64,
    /// How its lines end.
    pub ending: LineEnding,
    /// Its last byte ends a line.
    pub final_newline: bool,
}

/// How the lines of a file end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineEnding {
    /// `\n`
    Lf,
    /// `\r\n`
    Crlf,
    /// Some so, some so.
    Mixed,
    /// There is none.
    None,
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteReport {
    /// The file.
    pub file: WorkspaceEntry,
    /// It was made.
    pub created: bool,
    /// Its content is another one.
    pub changed: bool,
    /// Places that an edit replaced.
    pub replaced: u64,
    /// An edit's texts were taken with the file's line ends.
    pub adapted: bool,
    /// The first bytes of the new content, cut between characters.
    pub begin: String,
    /// There is more of it.
    pub more: bool,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrepMatch {
    /// Of which file.
    pub path: String,
    /// Its number, from 1.
    pub line: u64,
    /// Without its end; what is no UTF-8 is U+FFFD.
    pub text: String,
    /// It was longer.
    pub cut: bool,
    /// Lines before.
    pub before: Vec<String>,
    /// Lines after.
    pub after: Vec<String>,
}

/// Files that are not what they were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReport {
    /// Made, sorted; at most as many as were asked for.
    pub created: Vec<String>,
    /// Written, sorted; at most as many.
    pub modified: Vec<String>,
    /// Gone, sorted; at most as many.
    pub deleted: Vec<String>,
    /// How many altogether.
    pub total: u64,
    /// Everything was looked at.
    pub complete: bool,
}

/// What is remembered of a file that was touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackedFile {
    /// From the workspace.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Hex; none for a file of more than 8 MiB.
    pub sha256: Option<String>,
    /// From 1, one more whenever the content was found changed.
    pub version: u64,
    /// First seen, in milliseconds since 1970.
    pub created_ms: i64,
    /// Last found changed, in milliseconds since 1970.
    pub updated_ms: i64,
    /// The tool that touched it last.
    pub last_tool: String,
    /// It is gone.
    pub deleted: bool,
    /// The content that a tool of this session read or wrote last, as hex: what may be written over unread.
    pub seen: Option<String>,
}

/// A file or link, and what tells its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDigest {
    /// From the workspace, as text.
    pub path: String,
    /// What it is itself; no directory.
    pub kind: EntryKind,
    /// Bytes; 0 for what is no file.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Hex; none for what is no file or cannot be read.
    pub sha256: Option<String>,
    /// What a link says.
    pub target: Option<String>,
    /// Its path has bytes that no text can say.
    pub odd: bool,
}

/// A file to be staged, or a further piece of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedFile {
    /// From the workspace.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Its bytes, or some of them.
    pub content: Bytes,
    /// They come after what is there already.
    pub more: bool,
}

/// Why an act was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceError {
    /// What a caller can tell apart.
    pub code: WorkspaceErrorCode,
    /// What the kernel or a parser said, if that tells more.
    pub detail: String,
    /// How often the old text of an edit is there.
    pub occurrences: u64,
    /// The first lines where it is.
    pub lines: Vec<u64>,
}

impl WorkspaceError {
    /// One that says no more than its code.
    #[must_use]
    pub fn from_code(code: WorkspaceErrorCode) -> Self {
        Self { code, detail: String::new(), occurrences: 0, lines: Vec::new() }
    }

    /// One with what the kernel or a parser said.
    #[must_use]
    pub fn with_detail(code: WorkspaceErrorCode, detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..Self::from_code(code) }
    }
}

/// Troubles that a caller can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceErrorCode {
    /// There is nothing at the path.
    NotFound,
    /// Something is there already.
    Exists,
    /// It is a directory that is not empty.
    NotEmpty,
    /// It leads outside.
    Escape,
    /// It is a directory.
    IsDirectory,
    /// It, or something above it, is no directory.
    NotDirectory,
    /// It is a pipe, socket or device.
    NotRegular,
    /// It is no text.
    Binary,
    /// Too many bytes.
    TooLarge,
    /// The old text of an edit is not there.
    NoMatch,
    /// It is there more than once.
    Ambiguous,
    /// The file was not read before.
    NotSeen,
    /// The file changed since it was read.
    Stale,
    /// No space is left.
    Full,
    /// The user may not.
    Denied,
    /// Nobody may: what it lies on is read-only.
    ReadOnly,
    /// The pattern cannot be read.
    BadPattern,
    /// Reading or writing failed.
    Io,
    /// A trouble that this version does not know.
    #[serde(other)]
    Unknown,
}
