//! The tools that an agent works with all day, on a container of its session.
//!
//! A [`Tool`] is one tool: its fields are the arguments, its comments the documentation, and [`Tool::run`] does it in a
//! [`Workspace`] and gives a [`Response`]. A workspace gets its container from a [`SessionSource`]: `lifecycle` creates and
//! replaces a session's containers (feature `containers`), or the caller has one of its own.
//!
//! **Invariant:** the host never opens a path that code inside can write: files are listed, read, written and searched
//! by the guest, as the session's user.
//! **Invariant:** a request that may have had an effect is never repeated; if its container is lost, the response
//! reports it.
//! **Invariant:** every response has one message, and a failed one a code; output of a program is data in it.
//! **Invariant:** nothing here knows MCP, configuration or the command line.

#![warn(missing_docs)]

pub mod arguments;
mod concurrency;
mod disk_quota;
mod export;
mod file_errors;
mod files;
pub mod fs;
mod import;
mod kernel;
mod language;
#[cfg(feature = "containers")]
mod managed;
mod output;
mod paths;
mod persistent;
mod plural;
mod prompt;
mod python;
mod response;
mod run_code;
pub mod schema;
mod search;
mod session;
mod session_source;
mod settings;
mod shell;
mod snapshot;
mod time_limit;
mod tool;
mod workspace;

pub use concurrency::ConcurrencyLimit;
pub use coracle_protocol::workspace::OpenMode;
pub use coracle_types::SlotRole;
pub use coracle_types::failure::{Code, Failure};
pub use coracle_types::replacement::{Reason, Replacement};
pub use export::{
    AppliedChanges, AppliedFile, ApplyError, ApplyOptions, Change, ChangeKind, Changes, Conflict, FileDiff,
    SkippedFile, WorkspaceArchive, apply, changes, diff, digests, export,
};
pub use files::{DeleteEntry, EditFile, FileInfo, Ls, ReadFile, ReadFileResult, Rm, WriteFile, WrittenFile};
pub use fs::{FsError, GuestFs};
pub use import::{Filter, HostMount, ImportError, ImportEstimate, estimate, import};
pub use kernel::{RunFile, RunOutput};
pub use language::Language;
#[cfg(feature = "containers")]
pub use managed::{ContainerProvider, ManagedOptions, ManagedSessions, RoleSettings, engine_unavailable};
pub use persistent::KernelState;
pub use prompt::{PromptContext, PromptMount, prompt, unavailable};
pub use python::{EvaluatePython, EvaluationResult};
pub use response::{ContainerRef, Cut, Response, Warning};
pub use run_code::{RunCode, RunCodeResult};
pub use search::{Glob, GlobMatch, Grep, GrepMatch};
pub use session::SessionHandle;
pub use session_source::SessionSource;
pub use settings::{EnvKeys, Mode, PathCharset, PathRoot, PathRules, Preload, RunSettings, ToolSettings};
pub use shell::{ChangedFiles, Shell, ShellResult};
pub use snapshot::{Snapshot, TouchedFile};
pub use tool::{Alias, Effect, Tool, with_notes};
pub use workspace::Workspace;

/// The example of the book.
#[cfg(doctest)]
#[doc = include_str!("../docs/workspace.md")]
struct Page;
