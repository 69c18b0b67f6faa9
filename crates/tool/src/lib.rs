//! Coracle gives each AI agent a Linux machine of its own in a container.
//!
//! A program uses it in three lines:
//!
//! ```no_run
//! use coracle::{Container, ContainerOptions};
//!
//! # async fn three_lines() -> Result<(), coracle::Failure> {
//! let c = Container::create(ContainerOptions::purpose("python")).await?;
//! let r = c.exec("pytest -q").await?;
//! c.destroy().await?;
//! # assert_eq!(r.exit_code, Some(0));
//! # Ok(())
//! # }
//! ```
//!
//! [`Client`] is a session that makes several, with another configuration or engine; [`Container`] has files, forks and
//! snapshots; [`Client::call`] reaches every operation. An error is a [`Failure`] with a code, and what to do next.
//!
//! Below that is what the front ends are made of.
//!
//! [`operations::ALL`] is the table of operations, [`execute`] does what a call asks, a [`Context`] holds what an operation is given
//! (configuration, host, records, engines, whose call it is), and a [`Process`] what outlives a call. The front ends
//! (`coracle call` and the command line in `coracle-cli`, MCP in `coracle-mcp`) differ in how they read a call and show its
//! answer, and in nothing else.
//!
//! **Invariant:** every answer has `success`, and `error` if and only if that is false.
//! **Invariant:** the environment is read in `host`, and nowhere else.
//! **Invariant:** nothing that acts is done before its intent stands in the audit trail.
//! **Invariant:** nothing here parses a command line, speaks a protocol or draws a table.

pub mod admin;
pub mod agent_run;
mod arg_types;
pub mod audit;
pub mod coding_agents;
mod commands;
pub mod config;
mod container_guest;
mod context;
mod create;
mod dispatch;
pub mod document;
mod egress;
mod engines;
mod event_log;
mod facade;
pub mod failure;
mod forwards;
pub mod frontend;
mod git_programs;
pub mod guest;
mod host;
mod host_identity;
pub mod host_system;
pub mod humanize;
mod image_build;
mod last_seen;
pub mod maintenance;
mod model_text;
mod new_file;
pub mod operations;
mod person_session;
pub mod person_terminal;
mod policy;
mod preflight;
mod printed_keys;
mod process;
mod progress;
mod protected_paths;
mod records;
mod redaction;
mod removal;
mod requested;
mod requests;
mod resolve;
pub mod sandbox;
mod session_env;
pub mod session_tools;
mod shells;
pub mod shorthand;
mod snapshot;
mod state;
mod strict;
pub mod suggest;
mod target;
mod terminals;
pub mod tools;
mod usage;
mod warning;
mod workflow;
mod workspace_mounts;
pub mod worktree;

pub use arg_types::{Script, Seconds};
pub use context::{CallContext, ConfigSource, Context, Frontend, Options};
pub use coracle_runtime::Input;
pub use coracle_workspace::arguments as schema;
pub use create::step_block;
pub use dispatch::{
    Audience, CallInput, CallResponse, Effect, MAX_BYTES, Operation, OperationEntry, ResponseImage, SharedFields,
    execute, parse_message, parse_object, tool_schema,
};
pub use engines::{Choice, Engines};
pub use facade::{CallFields, Client, CommandResult, Container, ContainerOptions};
pub use failure::{Code, Failure};
pub use host::{Host, NoHost};
pub use person_session::PersonSession;
pub use process::Process;
pub use progress::{Amount, Event, Progress};
pub use resolve::{copyable, host_path};
pub use state::StateDir;
pub use target::{Access, check_policy, stopped};
pub use usage::{READ_AT_ONCE, UsageReading, read_usage};
pub use warning::Warning;
