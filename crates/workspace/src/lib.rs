//! The tools that an agent works with all day, on a container of its session.
//!
//! A [`Tool`] is one tool: its fields are the arguments, its comments the documentation, and [`Tool::run`] does it in a
//! [`Workspace`] and gives a [`Response`]. A workspace gets its container from [`Sessions`], which somebody else implements,
//! and speaks with the guest in it alone.
//!
//! **Invariant:** the host never opens a path that code inside can write: files are listed, read, written and searched by
//! the guest, as the session's user.
//! **Invariant:** a request that may have had an effect is never repeated; if its container is lost, the response says so.
//! **Invariant:** every response has one message, and a failed one a code; output of a program is data in it.
//! **Invariant:** nothing here knows an engine, MCP, configuration or the command line.

#![warn(missing_docs)]

mod code;
mod concurrency;
mod disk_quota;
mod export;
mod files;
pub mod fs;
mod import;
mod language;
mod output;
mod paths;
mod plural;
mod prompt;
mod python;
mod response;
mod run_code;
pub mod schema;
mod search;
mod sessions;
mod settings;
mod shell;
mod snapshot;
mod time_limit;
mod tool;
mod workspace;

pub use code::Code;
pub use concurrency::ConcurrencyLimit;
pub use coracle_runtime::replacement::{Reason, Recreated};
pub use export::{
    Applied, ApplyError, ApplyOptions, Change, ChangeKind, Changes, Conflict, Exported, FileDiff, SkippedFile, apply,
    changes, diff, digests, export,
};
pub use files::{DeleteEntry, EditFile, FileInfo, Ls, ReadFile, ReadFileResult, Rm, WriteFile, Written};
pub use fs::{FsError, GuestFs, WorkspaceFs};
pub use import::{Filter, HostMount, ImportError, ImportEstimate, estimate, import};
pub use language::Language;
pub use prompt::{PromptContext, PromptMount, prompt, unavailable};
pub use python::{EvaluatePython, Evaluated};
pub use response::{ContainerRef, Cut, Failure, Response, Warning};
pub use run_code::{RunCode, RunCodeResult};
pub use search::{Glob, GlobMatch, Grep, GrepMatch};
pub use sessions::{Role, Session, Sessions};
pub use settings::{EnvKeys, Mode, PathCharset, Preload, RunSettings, Settings};
pub use shell::{Changed, Shell, ShellResult};
pub use snapshot::{Snapshot, Touched};
pub use tool::{Alias, Effect, Tool, with_notes};
pub use workspace::Workspace;

/// The example of the book.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/workspace.md")]
struct Page;
