//! The host's side: starts programs, opens and replaces files, runs git.
//!
//! [`process`] starts programs, [`program`] runs one as a command. [`tree`] and [`fs`] keep files open, so that the
//! checked file is the used one, and [`lock`] locks them between processes. [`git`] is git on the host.
//!
//! **Invariant:** only `process.rs` starts programs. They get an absolute path, their own environment, and no inherited
//! input.
//! **Invariant:** nothing here depends on an engine or a guest.

#![warn(missing_docs)]

pub mod address;
pub mod branch;
pub mod cgroup;
pub mod drain;
pub mod find_program;
pub mod fs;
pub mod gh;
pub mod git;
pub mod git_url;
pub mod hardened;
pub mod index;
pub mod lock;
pub mod process;
pub mod process_group;
pub mod process_marker;
pub mod program;
pub mod recorded_process;
pub mod registry_login;
pub mod resolver;
pub mod rotating_log;
pub mod state_file;
pub mod temporary;
pub mod tree;
pub mod tree_backup;
pub mod tree_sweep;
