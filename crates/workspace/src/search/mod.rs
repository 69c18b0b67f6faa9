//! Looking for files and for lines (workspace.md 2.4).

mod glob;
mod grep;
mod pattern;

pub use self::glob::{Glob, GlobMatch};
pub use self::grep::{Grep, GrepMatch};
