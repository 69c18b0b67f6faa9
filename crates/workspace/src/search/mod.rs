//! Looking for files and for lines.

mod glob;
mod grep;
mod pattern;

pub use self::glob::{Glob, GlobMatch};
pub use self::grep::{Grep, GrepMatch};
