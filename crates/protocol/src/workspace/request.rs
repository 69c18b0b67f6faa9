//! Operations on the files of a workspace.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::WorkspaceReply;
use super::{StagedFile, TrackedFile};
use crate::body::Bytes;

/// An operation on the files of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceOp {
    /// Lists a directory by name: [`WorkspaceReply::Listed`].
    List {
        /// The directory.
        path: String,
        /// Limit of reported entries; the others are counted.
        most: u32,
    },
    /// Describes an entry: [`WorkspaceReply::Found`].
    Stat {
        /// The path.
        path: String,
    },
    /// Reads lines of a text: [`WorkspaceReply::Text`].
    Lines {
        /// The file.
        path: String,
        /// Lines before the first one.
        offset: u64,
        /// Limit of lines.
        limit: u64,
        /// Limit of bytes: only whole lines, unless the first one alone exceeds it.
        most: u32,
    },
    /// Reads bytes of a file: [`WorkspaceReply::Bytes`].
    Bytes {
        /// The file.
        path: String,
        /// Offset of the first byte.
        offset: u64,
        /// Limit of bytes.
        limit: u32,
    },
    /// Writes a file, or appends to it: [`WorkspaceReply::Written`].
    Write {
        /// The path.
        path: String,
        /// The content.
        content: Bytes,
        /// Whether the file may exist.
        how: OpenMode,
        /// Whether the file is executable. `None` does not change an existing file's permissions.
        executable: Option<bool>,
        /// Whether the current content of an existing file must have been read.
        seen: bool,
        /// The calling tool.
        tool: String,
    },
    /// Replaces a text in a file: [`WorkspaceReply::Written`].
    Edit {
        /// The file.
        path: String,
        /// The old text.
        old: Bytes,
        /// The new text.
        new: Bytes,
        /// Whether all occurrences are replaced, not the only one.
        all: bool,
        /// Whether the current content must have been read.
        seen: bool,
        /// The calling tool.
        tool: String,
    },
    /// Removes a file, a link or a tree: [`WorkspaceReply::Removed`]. Links are not followed.
    Remove {
        /// The path.
        path: String,
        /// Timeout in milliseconds.
        within_ms: u64,
        /// The calling tool.
        tool: String,
    },
    /// Removes a file, a link or an empty directory: [`WorkspaceReply::Removed`]. Links are not followed.
    RemoveOne {
        /// The path.
        path: String,
        /// The calling tool.
        tool: String,
    },
    /// Creates a directory: [`WorkspaceReply::Found`].
    MakeDir {
        /// The path.
        path: String,
        /// Whether missing parents are created.
        parents: bool,
        /// Whether an existing directory is not an error.
        exist_ok: bool,
    },
    /// Finds files whose path matches: [`WorkspaceReply::Globbed`].
    Glob {
        /// The directory to search.
        path: String,
        /// A pattern for the path relative to that directory.
        pattern: String,
        /// Whether files ignored by git are omitted.
        gitignore: bool,
        /// The limits.
        bounds: SearchLimits,
    },
    /// Finds lines that match: [`WorkspaceReply::Grepped`].
    Grep {
        /// A directory, or one file.
        path: String,
        /// A regular expression, matched against each line without its ending.
        pattern: String,
        /// Only files whose name matches, or with a slash whose relative path matches.
        glob: Option<String>,
        /// Whether letters match in either case.
        ignore_case: bool,
        /// Lines before and after each match.
        context: u32,
        /// Whether files ignored by git are omitted.
        gitignore: bool,
        /// The limits.
        bounds: SearchLimits,
    },
    /// Reports changes since the last scan: [`WorkspaceReply::Changed`].
    Changed {
        /// Paths to check in any case. Missing ones are not reported.
        hints: Vec<String>,
        /// Names of directories that are not entered.
        exclude: Vec<String>,
        /// The limits.
        bounds: SearchLimits,
        /// The tool that made the changes.
        tool: String,
    },
    /// Lists all tracked files: [`WorkspaceReply::Touched`].
    Touched,
    /// Lists every file and link with a digest: [`WorkspaceReply::Summed`].
    Sums {
        /// Only entries after this position, from the last reply.
        after: Option<String>,
        /// The limits.
        bounds: SearchLimits,
    },
    /// Measures the size: [`WorkspaceReply::Measured`].
    Measure {
        /// The limits.
        bounds: SearchLimits,
    },
    /// Writes files into a hidden directory, from which they are moved into place together: [`WorkspaceReply::Staged`].
    Stage {
        /// The directory: `.coracle-`, 16 hex digits, `.tmp`.
        stage: String,
        /// Whether it is created, and others of its kind are removed.
        begins: bool,
        /// The files, or further pieces of them.
        files: Vec<StagedFile>,
    },
    /// Moves all staged files into place, replacing existing ones: [`WorkspaceReply::Staged`].
    Unstage {
        /// The directory.
        stage: String,
    },
    /// Restores the records of an earlier guest for this workspace: [`WorkspaceReply::Recalled`].
    Recall {
        /// All records.
        files: Vec<TrackedFile>,
    },
}

impl WorkspaceOp {
    /// Whether it changes nothing, not even tracked files: it may be repeated if a connection breaks.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::List { .. }
                | Self::Stat { .. }
                | Self::Lines { .. }
                | Self::Bytes { .. }
                | Self::Glob { .. }
                | Self::Grep { .. }
                | Self::Touched
                | Self::Measure { .. }
        )
    }
}

/// Whether a file that is written may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenMode {
    /// It must not exist.
    Create,
    /// An existing file is replaced.
    Overwrite,
    /// An existing file is appended to.
    Append,
}

/// Limits of a search or scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchLimits {
    /// Limit of reported results; the others are counted.
    pub most: u32,
    /// Limit of scanned entries.
    pub entries: u32,
    /// Limit of the duration in milliseconds.
    pub within_ms: u64,
}
