//! Changes of a workspace since its import: compared, packed, or applied to the host.
//!
//! The guest lists the files. Its replies are untrusted data: names are checked, the host follows no link, and set-id bits
//! are dropped.
//!
//! **Invariant:** nothing is written on the host before every file was checked.

mod apply;
mod changes;
mod diff;
mod fetch;
mod host_files;
mod tar;
#[cfg(test)]
mod tests;

pub use self::apply::{AppliedChanges, AppliedFile, ApplyError, ApplyOptions, Conflict, apply};
pub use self::changes::{Change, ChangeKind, Changes, SkippedFile, changes};
pub use self::diff::{FileDiff, diff};
pub use self::fetch::digests;
pub use self::tar::{WorkspaceArchive, export};
