//! What host and guest say to each other.
//!
//! [`Request`] is what the host says, [`GuestMessage`] what the guest says, [`codec`] how both travel. Both ends depend on this crate and
//! on nothing of each other.
//!
//! A [`Frame`](codec::Frame) belongs to a *channel*, a number that the host chose. Channel 0 is the connection's
//! own: [`Request::Hello`] and its answer come first. Every other channel is opened by one [`Request`] and ended by the guest
//! with exactly one of [`GuestMessage::End`], [`GuestMessage::Answer`] and [`GuestMessage::Failed`]; until then the number is taken. Bytes of any
//! kind (arguments, environment, data) are payload, never header.
//!
//! Flow control: a sender of data may have [`WINDOW`] bytes of payload under way on a channel, and gets room back by
//! [`Request::Credit`] or [`GuestMessage::Credit`]. A request that announces bytes may send these and no more. The guest reserves both
//! when the channel is opened, and refuses with [`ErrorCode::Busy`] when they would be too many.
//!
//! **Invariant:** nothing that is received is allocated by a number that was received: lengths are checked first.
//! **Invariant:** pure: no input or output, no runtime, nothing of Linux. It compiles wherever a host runs.

#![warn(missing_docs)]

pub mod codec;
mod command;
mod error;
mod file;
mod hello;
mod job;
mod limits;
pub mod mux;
pub mod paths;
pub mod patterns;
pub mod relay;
mod request;
mod response;
mod scan;
pub mod secret_encodings;
mod user;
pub mod workspace;

pub use self::command::{
    ExecRequest, ExecStarted, ExecState, ExecStatus, ExecTimeouts, Lifetime, OutputMode, Stream, TerminalSize,
};
pub use self::error::{ErrorCode, RpcError};
pub use self::file::{FileEntry, FileKind, FileRef};
pub use self::hello::{Hello, Retention};
pub use self::job::{
    JobInfo, LastLines, LineMatch, OutputPage, Position, ReadRequest, SearchRequest, SearchResult, StreamSelector,
    WaitOutcome, WaitRequest, WaitResult,
};
pub use self::limits::{
    CHUNK, MAX_CHANNELS, MAX_COMMAND, MAX_HEADER, MAX_PAYLOAD, MAX_SECRET, MAX_SESSION, MAX_UNKNOWN, MAX_VARIABLE,
    MAX_WALKED, WINDOW,
};
pub use self::request::Request;
pub use self::response::{CallReply, GuestMessage};
pub use self::scan::{ScanEntry, ScanRequest, SecretQuery};
pub use self::user::{EnsureUser, OpenWorkerSocket, PutSecret, UserInfo, UserSpec};

/// Version of what is said. Both sides compare it in their hello, and neither speaks to another version.
pub const VERSION: u32 = 1;

/// What a program that the host runs inside says when nobody listens there any more.
pub const SOCKET_GONE: &str = "the socket of the guest was removed";

/// What PID 1 ends with when nobody was there for as long as it waits.
pub const LEFT_ALONE: u8 = 75;
