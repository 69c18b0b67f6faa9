//! Scripts of a command that runs by an engine's own exec, for engines in other crates.

pub use crate::program::exec::{END_TREE, ENTER, IS_DIR, MARK};
