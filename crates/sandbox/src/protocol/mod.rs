//! What a worker and the host say to each other: requests one way, lines the other.
//!
//! **Invariant:** a size is checked before memory of that size is allocated.
//! **Invariant:** what a worker sends is a claim: it is counted and checked against the request.

mod frame;
mod line;
mod message;
mod request;
#[cfg(test)]
mod tests;

pub use frame::ResponseFrame;
pub use line::{Lines, MAX_LINE};
pub use message::{MAX_CONTENT, MAX_OUTPUT, MessageType, Usage, WorkerMessage, cut};
pub use request::{MAX_REQUEST, Mode, Requests, RunLimits, WorkerRequest, encode};
