//! What is done.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::WorkspaceReply;
use super::{StagedFile, TrackedFile};
use crate::body::Bytes;

/// What is done with the files of a workspace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceOp {
    /// What is in a directory, by name: [`WorkspaceReply::Listed`].
    List {
        /// Which.
        path: String,
        /// At most so many entries are told; the others are counted.
        most: u32,
    },
    /// What is at a path: [`WorkspaceReply::Found`].
    Stat {
        /// Where.
        path: String,
    },
    /// Lines of a text: [`WorkspaceReply::Text`].
    Lines {
        /// Of which file.
        path: String,
        /// Lines before the first one.
        offset: u64,
        /// At most so many lines.
        limit: u64,
        /// At most so many bytes: whole lines, unless already the first one has more.
        most: u32,
    },
    /// A piece of a file as it is: [`WorkspaceReply::Bytes`].
    Bytes {
        /// Of which file.
        path: String,
        /// Bytes before it.
        offset: u64,
        /// At most so many bytes.
        limit: u32,
    },
    /// Writes a file whole, or adds to it: [`WorkspaceReply::Written`].
    Write {
        /// Where.
        path: String,
        /// What is written.
        content: Bytes,
        /// What may be there.
        how: OpenMode,
        /// A new file can be executed. One that is there keeps its permissions, unless this is said.
        executable: Option<bool>,
        /// A file that is there must have been seen as it is.
        seen: bool,
        /// Who touched it.
        tool: String,
    },
    /// Replaces a text in a file: [`WorkspaceReply::Written`].
    Edit {
        /// Of which file.
        path: String,
        /// The old text.
        old: Bytes,
        /// The new text.
        new: Bytes,
        /// All that match, not the only one.
        all: bool,
        /// The file must have been seen as it is.
        seen: bool,
        /// Who touched it.
        tool: String,
    },
    /// Removes a file, a link or a tree: [`WorkspaceReply::Removed`]. Nothing is followed.
    Remove {
        /// What.
        path: String,
        /// Milliseconds after which it is given up.
        within_ms: u64,
        /// Who touched it.
        tool: String,
    },
    /// Removes a file, a link or a directory that is empty: [`WorkspaceReply::Removed`]. Nothing is followed.
    RemoveOne {
        /// What.
        path: String,
        /// Who touched it.
        tool: String,
    },
    /// Makes a directory, with those above it: [`WorkspaceReply::Found`].
    MakeDir {
        /// Where.
        path: String,
        /// Missing parents are made.
        parents: bool,
        /// One that is there already is no error.
        exist_ok: bool,
    },
    /// Files whose path matches: [`WorkspaceReply::Globbed`].
    Glob {
        /// Below which directory.
        path: String,
        /// Against the path from there.
        pattern: String,
        /// What git would ignore is left out.
        gitignore: bool,
        /// Where it ends.
        bounds: SearchLimits,
    },
    /// Lines that match: [`WorkspaceReply::Grepped`].
    Grep {
        /// A directory, or one file.
        path: String,
        /// A regular expression, against each line without its end.
        pattern: String,
        /// Only files whose name, or with a slash whose path from there, matches.
        glob: Option<String>,
        /// Letters match in either case.
        ignore_case: bool,
        /// Lines before and after each match.
        context: u32,
        /// What git would ignore is left out.
        gitignore: bool,
        /// Where it ends.
        bounds: SearchLimits,
    },
    /// What changed since the last look: [`WorkspaceReply::Changed`].
    Changed {
        /// Paths to look at in any case. One that is not there is no news.
        hints: Vec<String>,
        /// Names of directories that are not entered.
        exclude: Vec<String>,
        /// Where it ends.
        bounds: SearchLimits,
        /// Who touched what changed.
        tool: String,
    },
    /// All that is remembered of files that were touched: [`WorkspaceReply::Touched`].
    Touched,
    /// Every file and link with what tells its content: [`WorkspaceReply::Summed`].
    Sums {
        /// Only what comes after this place, as the last answer told it.
        after: Option<String>,
        /// Where it ends.
        bounds: SearchLimits,
    },
    /// How much there is: [`WorkspaceReply::Measured`].
    Measure {
        /// Where it ends.
        bounds: SearchLimits,
    },
    /// Writes files into a directory that nobody sees, to be moved into place together: [`WorkspaceReply::Staged`].
    Stage {
        /// The directory: `.coracle-`, 16 hex digits, `.tmp`.
        stage: String,
        /// It is made, and any other of its kind goes.
        begins: bool,
        /// The files, or further pieces of them.
        files: Vec<StagedFile>,
    },
    /// Moves all that was staged into place, over what is there: [`WorkspaceReply::Staged`].
    Unstage {
        /// The directory.
        stage: String,
    },
    /// What an earlier guest of this workspace remembered: [`WorkspaceReply::Recalled`].
    Recall {
        /// All of it.
        files: Vec<TrackedFile>,
    },
}

impl WorkspaceOp {
    /// Whether it changes nothing, not even what is remembered of files: it may be repeated when a connection breaks.
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

/// What may be at a path that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenMode {
    /// Nothing.
    Create,
    /// Nothing, or a file, which is replaced.
    Overwrite,
    /// Nothing, or a file, which is added to.
    Append,
}

/// Where something that goes through files ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchLimits {
    /// At most so many results are told; the others are counted.
    pub most: u32,
    /// At most so many entries are met.
    pub entries: u32,
    /// At most so many milliseconds are spent.
    pub within_ms: u64,
}
