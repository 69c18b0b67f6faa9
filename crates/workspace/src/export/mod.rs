//! What became of a workspace since it was filled, and its way out: seen, packed, or back to the host (workspace.md 1.11).
//!
//! The guest tells what is there. Everything it tells is data: names are checked, links are never followed on the host,
//! and set-id bits stay behind.
//!
//! **Invariant:** nothing of the host is written before everything was looked at.

mod apply;
mod changes;
mod diff;
mod fetch;
mod host_files;
mod tar;
#[cfg(test)]
mod tests;

pub use self::apply::{Applied, ApplyError, ApplyOptions, Conflict, apply};
pub use self::changes::{Change, ChangeKind, Changes, SkippedFile, changes};
pub use self::diff::{FileDiff, diff};
pub use self::fetch::sums;
pub use self::tar::{Exported, export};
