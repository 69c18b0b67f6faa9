//! What is asked and answered about files.

pub use coracle_runtime::link::protocol::workspace::{
    EntryKind as FsKind, GrepMatch as LineMatch, OpenMode as WriteMode,
};
use jiff::Timestamp;

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsEntry {
    /// From the root, empty for the root itself; can be passed back, unless it is not `addressable`.
    pub path: String,
    /// What it is. A link that leads inside is what it leads to.
    pub kind: FsKind,
    /// Bytes; 0 for what is no file.
    pub size: u64,
    /// How often it was seen to change, from 1; 0 for what is no file.
    pub version: u64,
    /// When its content changed last.
    pub changed: Timestamp,
    /// What a link says that leads nowhere or outside.
    pub target: Option<String>,
    /// False for a name that is no UTF-8 or too long, below a depth that no path has.
    pub addressable: bool,
}

/// Results, and what is missing of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// Those that are told, in order.
    pub items: Vec<T>,
    /// How many more were met.
    pub omitted: u64,
    /// Everything was looked at; else there may be more.
    pub complete: bool,
}

/// Lines to look for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines<'a> {
    /// A regular expression in the syntax of Rust's `regex`, against each line.
    pub pattern: &'a str,
    /// Only files whose name, or with a slash whose path from there, matches.
    pub glob: Option<&'a str>,
    /// Letters match in either case.
    pub ignore_case: bool,
    /// Lines before and after each match, at most 5.
    pub context: u32,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Writing {
    /// What may be there.
    pub mode: WriteMode,
    /// Missing directories above it are made.
    pub create_parents: bool,
}

impl From<WriteMode> for Writing {
    /// With the directories above it.
    fn from(mode: WriteMode) -> Self {
        Self { mode, create_parents: true }
    }
}
