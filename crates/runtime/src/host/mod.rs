//! The host's side: files held open and programs started.

pub mod drain;
pub mod fs;
pub mod process;
