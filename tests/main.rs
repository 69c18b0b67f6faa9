//! Everything that is tested from outside a crate, in one binary.

#![expect(clippy::unwrap_used, reason = "a test ends where its expectation is not met")]
#![expect(clippy::print_stderr, reason = "the runner shows it for a test that failed")]

mod compose_models;
mod conformance;
mod content;
mod engines;
mod escapes;
mod fake;
mod git_routes;
mod guest;
mod host_git;
mod images;
mod isolation;
mod provision;
mod sandbox;
mod scripted;
mod servers;
mod session_containers;
mod tool;
mod worker;
mod workspace_fs;
mod worktrees;
