//! The host's side: files held open and programs started.

pub(crate) mod cgroup;
pub mod drain;
pub mod fs;
pub mod gh;
pub mod git;
pub mod index;
pub(crate) mod marked;
pub mod process;
pub mod program;
pub mod tree;
