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
//! [`Client`] is a session. Use it to create several containers, or to choose another configuration or engine.
//! [`Container`] has commands, jobs, files, forks and snapshots; [`Client::call`] reaches every operation. An error is
//! a [`Failure`] with a code and a hint.
//!
//! The front ends are built on the rest of this crate. [`operations::ALL`] is the table of operations, and [`execute`]
//! executes a call. A [`Context`](coracle_context::Context) holds what an operation needs: configuration, host,
//! records, engines, caller. A [`Process`] holds what outlives a call. The front ends (`coracle call` and the command
//! line in `coracle-cli`, MCP in `coracle-mcp`) differ only in how they read a call and show its answer.
//!
//! **Invariant:** every answer has `success`, and has `error` if and only if `success` is false.
//! **Invariant:** the audit trail records the intent of a call before the call changes anything.
//! **Invariant:** nothing here parses a command line, speaks a protocol or draws a table.

pub mod admin;
pub mod agent_run;
pub mod audited;
mod checkpoints;
mod commands;
mod create;
mod dispatch;
mod facade;
mod fork;
pub mod frontend;
mod last_seen;
pub mod maintenance;
pub mod operations;
mod person_session;
pub mod person_terminal;
mod protected_paths;
mod race;
mod shapes;
mod snapshot;
mod target;
mod terminals;
pub mod tools;
mod usage;
mod workflow;
pub mod worktree;

pub use coracle_context::warning::Warning;
pub use coracle_context::{Code, Failure, Frontend, Host, Options};
pub use coracle_jobs::{JobState, WaitOutcome};
pub use coracle_lifecycle::{Finding, SaveReport};
pub use coracle_prepare::Process;
pub use coracle_provision::Report;
pub use coracle_runtime::PublishedPort;
pub use coracle_types::{Chunk, ContainerPath, Input, JobId, Stream};
pub use coracle_types::{ERROR_CLASSES, ErrorClass};
pub use coracle_workspace::arguments as schema;
pub use create::{CreateResponse, step_block};
pub use dispatch::{
    Audience, CallInput, CallResponse, Effect, MAX_BYTES, Operation, OperationEntry, ResponseImage, SharedFields,
    execute, execute_request, parse_message, parse_object, query, tool_schema,
};
pub use facade::{
    CallFields, Client, CommandResult, CommandStream, Container, ContainerOptions, ExecOptions, Job, JobInfo,
    OutputPage, Removed, SnapshotInfo, WaitOptions, Waited,
};
pub use person_session::PersonSession;
pub use shapes::step_schema;
pub use target::{Access, check_policy, stopped};
pub use usage::{READ_AT_ONCE, UsageReading, read_usage};
