//! Types that all crates of the host share: names, paths, sizes, secrets, commands and their results, errors.
//!
//! A value is parsed once, where it enters the program, and not checked again. [`Error`] is the error type of engines,
//! guests and programs: callers can react to each variant. [`Failure`](failure::Failure) is the answer to a failed
//! call: a code, a message, and a hint.
//!
//! **Invariant:** values only. Nothing here starts, opens or sends anything; only [`ProcessId`] reads `/proc`.
//! **Invariant:** a command that exits non-zero is a *result*, not an [`Error`].
//! **Invariant:** only [`Secret::reveal`] shows a [`Secret`].

#![warn(missing_docs)]

mod archive_error;
mod capture;
mod engine;
mod error;
mod error_class;
mod exec;
pub mod failure;
mod name;
mod path;
mod plain_exec;
mod port_target;
mod process;
mod redact;
pub mod replacement;
mod secret;
mod size;
mod slot_role;
mod stored_file;
mod terminal_text;
mod user;
mod warning;
mod workflow;

pub use archive_error::ArchiveError;
pub use capture::Capture;
pub use engine::{ContainerStatus, EngineKind, IsolationKind};
pub use error::{Capability, ConnectionFault, Error, Excerpt, Result};
pub use error_class::{ERROR_CLASSES, ErrorClass};
pub use exec::{AtLimit, Chunk, Command, Exec, ExecLimits, ExecOutput, Exit, Input, LimitKind, Stream, TerminalSize};
pub use name::{
    ContainerId, ContainerName, Handle, ImageId, ImageRef, InvalidName, JobId, LabelNamespace, NetworkName,
    ProjectName, RecordId, SnapshotName, VolumeName, random_hex,
};
pub use path::{ContainerPath, InvalidPath};
pub use port_target::{InvalidPort, PortTarget};
pub use process::{ProcessId, boot_id};
pub use redact::{Redactor, StreamRedactor};
pub use secret::Secret;
pub use size::{ByteSize, InvalidSize};
pub use slot_role::SlotRole;
pub use stored_file::{StoredFileError, parse_stored};
pub use terminal_text::{escape, is_deceptive, sanitize};
pub use user::Ids;
pub use warning::SandboxWarning;
pub use workflow::{ProfileName, WorkflowId};
