//! What host and guest say to each other.
//!
//! [`calls`] is the table of all calls, [`HostMessage`] and [`GuestMessage`] what travels on a channel, [`codec`] how frames
//! are read, [`body`] how requests and replies are encoded, and [`mux`] the channels and windows of both ends. Both ends
//! depend on this crate and on nothing of each other.
//!
//! A [`Frame`](codec::Frame) belongs to a *channel*, a number that the host chose. Channel 0 is the connection's own: the
//! [greetings](FirstMessage) come first, in JSON, so that sides of different versions can say which they are. Every other channel
//! is opened by [`HostMessage::Open`] and ended by the guest with exactly one [`GuestMessage::Reply`] or
//! [`GuestMessage::Failed`]; until then the number is taken.
//!
//! Flow control: a sender of data may have [`WINDOW`] bytes under way on a channel, and gets room back by a window update. The
//! opening announces how many bytes its request has. The guest reserves both when the channel is opened, and refuses with
//! [`ErrorCode::Busy`] when they would be too many.
//!
//! **Invariant:** nothing that is received is allocated by a number that was received: lengths are checked first.
//! **Invariant:** pure: no input or output, no runtime, nothing of Linux. It compiles wherever a host runs.

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
    CHUNK, MAX_CHANNELS, MAX_COMMAND, MAX_HEADER, MAX_PAYLOAD, MAX_SECRET, MAX_SESSION, MAX_VARIABLE, MAX_WALKED,
    WINDOW,
};
pub use self::message::{GuestMessage, HostMessage};
pub use self::mounts::{MountIdentity, Unlock};
pub use self::scan::{ScanEntry, ScanRequest, SecretQuery};
pub use self::terminal::{AttachTerminal, ListTerminals, TerminalInfo};
pub use self::user::{EnsureUser, OpenWorkerSocket, PutSecret, SetSession, UserInfo, UserSpec};

/// Version of the protocol. Both sides compare it in their greeting, and neither speaks to another version: to raise it makes
/// live containers unusable, so calls are added instead.
pub const VERSION: u32 = 2;

/// What a program that the host runs inside says when nobody listens there any more.
pub const SOCKET_GONE: &str = "the socket of the guest was removed";

/// What PID 1 ends with when nobody was there for as long as it waits.
pub const LEFT_ALONE: u8 = 75;
