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
mod engines;
pub mod failure;
pub mod guest;
mod host;
mod mcp;
mod mouth;
mod near;
mod op;
pub mod ops;
mod preflight;
mod progress;
mod proxied;
mod reach;
mod redacted;
mod render;
mod resolve;
mod sandbox;
pub mod schema;
mod session;
pub mod setup;
mod shorthand;
mod state;
mod strict;
pub mod tools;
mod upkeep;

pub use args::{Script, Seconds};
pub use cli::main;
pub use context::{Context, Mouth, Options};
pub use engines::Choice;
pub use failure::{Code, Failure};
pub use host::{Host, NoHost};
pub use op::{Entry, Input, Operation, answer};
pub use progress::{Amount, Event, Progress};
/// The operations on worktrees, for [`answer`]: those of `coracle worktree`.
pub use sandbox::worktree::ALL as WORKTREES;
pub use state::StateDir;
