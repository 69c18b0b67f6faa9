//! Coracle gives each AI agent a Linux machine of its own in a container.
//!
//! [`ops::ALL`] is the table of operations, [`answer`] does what a call asks, and a [`Context`] holds what it needs:
//! configuration, host, state directory, engines. The three mouths (`coracle call`, the command line, MCP) differ in
//! how they read a call and show its answer, and in nothing else.
//!
//! **Invariant:** every answer has `success`, and `error` if and only if that is false.
//! **Invariant:** the environment is read in `host`, and nowhere else.
//! **Invariant:** standard output carries answers only; everything else goes to standard error.
//! **Invariant:** nothing that acts is done before its intent stands in the audit trail.

mod args;
mod audit;
mod call;
mod cli;
pub mod config;
mod context;
mod egress;
mod engines;
mod event_log;
pub mod failure;
mod frontend;
pub mod guest;
mod host;
mod host_identity;
mod host_system;
mod humanize;
mod image_build;
mod maintenance;
mod mcp;
mod near;
mod op;
pub mod ops;
mod policy;
mod preflight;
mod process;
mod progress;
mod records;
mod redaction;
mod removal;
mod render;
mod requested;
mod requests;
mod resolve;
mod sandbox;
pub mod schema;
mod session_env;
pub mod session_tools;
pub mod setup;
mod shorthand;
mod state;
mod strict;
mod target;
pub mod tools;
mod warning;
mod workspace_mounts;

pub use args::{Script, Seconds};
pub use cli::main;
pub use context::{CallContext, ConfigSource, Context, Mouth, Options};
pub use engines::Choice;
pub use failure::{Code, Failure};
pub use host::{Host, NoHost};
pub use op::{Entry, Input, Operation, answer, tool_schema};
/// The operations on worktrees, for [`answer`]: those of `coracle worktree`.
pub use ops::worktree::ALL as WORKTREES;
pub use process::Process;
pub use progress::{Amount, Event, Progress};
pub use state::StateDir;
