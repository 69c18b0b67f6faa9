//! What host and guest say to each other.
//!
//! [`Ask`] is what the host says, [`Say`] what the guest says, [`codec`] how both travel. Both ends depend on this crate and
//! on nothing of each other.
//!
//! A [`Frame`](codec::Frame) belongs to a *channel*, a number that the host chose. Channel 0 is the connection's
//! own: [`Ask::Hello`] and its answer come first. Every other channel is opened by one [`Ask`] and ended by the guest
//! with exactly one of [`Say::End`], [`Say::Answer`] and [`Say::Failed`]; until then the number is taken. Bytes of any
//! kind (arguments, environment, data) are payload, never header.
//!
//! Flow control: a sender of data may have [`WINDOW`] bytes of payload under way on a channel, and gets room back by
//! [`Ask::Credit`] or [`Say::Credit`]. A request that announces bytes may send these and no more. The guest reserves both
//! when the channel is opened, and refuses with [`FaultCode::Busy`] when they would be too many.
//!
//! **Invariant:** nothing that is received is allocated by a number that was received: lengths are checked first.
//! **Invariant:** pure: no input or output, no runtime, nothing of Linux. It compiles wherever a host runs.

#![warn(missing_docs)]

pub mod codec;
mod command;
mod fault;
mod file;
mod hello;
mod job;
mod limits;
pub mod paths;
pub mod patterns;
pub mod relay;
mod request;
mod response;
pub mod secret_encodings;
pub mod space;
mod user;
mod walk;

pub use self::command::{Begun, End, Exec, Life, Limits, Show, Size, State, Stream};
pub use self::fault::{Fault, FaultCode};
pub use self::file::{At, Entry, Kind};
pub use self::hello::{Hello, Keep};
pub use self::job::{Found, From, Job, LastLines, Match, Page, Part, Read, Reason, Search, Wait, Waited};
pub use self::limits::{
    CHUNK, MAX_CHANNELS, MAX_COMMAND, MAX_HEADER, MAX_PAYLOAD, MAX_SECRET, MAX_SESSION, MAX_UNKNOWN, MAX_VARIABLE,
    MAX_WALKED, WINDOW,
};
pub use self::request::Ask;
pub use self::response::{Answer, Say};
pub use self::user::{Secret, Settle, Settled, Who, Worker};
pub use self::walk::{Holding, Walk, Walked};

/// Version of what is said. Both sides compare it in their hello, and neither speaks to another version.
pub const VERSION: u32 = 1;

/// What a program that the host runs inside says when nobody listens there any more.
pub const SOCKET_GONE: &str = "the socket of the guest was removed";

/// What PID 1 ends with when nobody was there for as long as it waits.
pub const LEFT_ALONE: u8 = 75;
