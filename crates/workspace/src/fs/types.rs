//! Requests and answers about files.

pub use coracle_protocol::workspace::{EntryKind as FsKind, GrepMatch as LineMatch, OpenMode as WriteMode};
use jiff::Timestamp;

/// A file, with links followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsEntry {
    /// Path from the root, empty for the root itself; can be passed back, unless it is not `addressable`.
    pub path: String,
    /// Its kind. A link that leads inside has the kind of its target.
    pub kind: FsKind,
    /// Bytes; 0 for what is no file.
    pub size: u64,
    /// Number of observed changes, from 1; 0 for anything but a file.
    pub version: u64,
    /// Time of the last change of its content.
    pub changed: Timestamp,
    /// The target of a link that leads nowhere or outside.
    pub target: Option<String>,
    /// False for a name that is no UTF-8 or too long, below a depth that no path has.
    pub addressable: bool,
}

/// Results, and what is missing of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResults<T> {
    /// The reported results, in order.
    pub items: Vec<T>,
    /// Number of omitted results.
    pub omitted: u64,
    /// Everything was looked at; else there may be more.
    pub complete: bool,
}

/// Lines to look for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineQuery<'a> {
    /// A regular expression in the syntax of Rust's `regex`, against each line.
    pub pattern: &'a str,
    /// Only files whose name, or with a slash whose path from there, matches.
    pub glob: Option<&'a str>,
    /// Letters match in either case.
    pub ignore_case: bool,
    /// Lines before and after each match, at most 5.
    pub context: u32,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    /// What the path may hold before the write.
    pub mode: WriteMode,
    /// Missing directories above it are made.
    pub create_parents: bool,
}

impl From<WriteMode> for WriteOptions {
    /// Creates missing directories above it.
    fn from(mode: WriteMode) -> Self {
        Self { mode, create_parents: true }
    }
}
