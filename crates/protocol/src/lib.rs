//! The protocol between host and guest.
//!
//! [`calls`] is the table of all calls, [`HostMessage`] and [`GuestMessage`] are the messages on a channel, [`codec`] reads
//! and writes frames, [`body`] encodes requests and replies, and [`mux`] has the channels and windows of both ends. Both
//! ends depend on this crate and not on each other.
//!
//! A [`Frame`](codec::Frame) belongs to a *channel*, a number that the host chose. Channel 0 is the connection itself: its
//! first messages are the [greetings](FirstMessage), in JSON, so that different versions can identify each other. The host
//! opens every other channel with [`HostMessage::Open`], and the guest ends it with exactly one [`GuestMessage::Reply`] or
//! [`GuestMessage::Failed`]; until then the number is in use.
//!
//! Flow control: a sender may have [`WINDOW`] unacknowledged bytes of data on a channel, and gets credit by a window update.
//! The opening announces the length of the request. The guest reserves both when the channel is opened, and refuses with
//! [`ErrorCode::Busy`] if the quota is exceeded.
//!
//! **Invariant:** no received number decides the size of an allocation before it is checked against a limit.
//! **Invariant:** no I/O, no async runtime, nothing specific to Linux: the crate compiles on every host.

#![warn(missing_docs)]

pub mod body;
pub mod call;
pub mod calls;
pub mod codec;
mod command;
mod error;
mod file;
mod hello;
mod job;
mod limits;
mod message;
mod mounts;
pub mod mux;
pub mod paths;
pub mod patterns;
pub mod relay;
mod scan;
pub mod secret_encodings;
mod terminal;
mod user;
pub mod workspace;

pub use self::command::{
    AttachRequest, ExecRequest, ExecStarted, ExecState, ExecStatus, ExecTimeouts, Lifetime, OutputMode, Stream,
    TerminalSize,
};
pub use self::error::{ErrorCode, RpcError};
pub use self::file::{
    FileEntry, FileKind, FileRef, GetFile, ListFiles, MakeDir, MakeLink, PutFile, RemoveFile, RenameFile, SetTimes,
    StatFile,
};
pub use self::hello::{FirstMessage, Hello, Retention};
pub use self::job::{
    CancelJob, CancelReport, GetJob, JobInfo, LastLines, LineMatch, ListJobs, OutputPage, Ping, Position, ReadRequest,
    SearchRequest, SearchResult, StreamSelector, TailRequest, WaitOutcome, WaitRequest, WaitResult,
};
pub use self::limits::{
    CHUNK, MAX_CHANNELS, MAX_COMMAND, MAX_HEADER, MAX_PAYLOAD, MAX_SCAN_REPLY, MAX_SECRET, MAX_SESSION, MAX_VARIABLE,
    WINDOW,
};
pub use self::message::{GuestMessage, HostMessage};
pub use self::mounts::{MountIdentity, Unlock};
pub use self::scan::{ScanEntry, ScanRequest, SecretQuery};
pub use self::terminal::{AttachTerminal, ListTerminals, TerminalInfo};
pub use self::user::{EnsureUser, OpenWorkerSocket, PutSecret, SetSession, UserInfo, UserSpec};

/// Version of the protocol. Both sides compare it in their greeting and refuse another version: raising it makes live
/// containers unusable, so new calls are added instead.
pub const VERSION: u32 = 2;

/// The error of a program that the host runs inside if the guest's socket does not exist any more.
pub const SOCKET_GONE: &str = "the socket of the guest was removed";

/// The exit code of PID 1 after its idle timeout.
pub const IDLE_EXIT_CODE: u8 = 75;
