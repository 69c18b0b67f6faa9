//! What is put into a container after it is made, with a report of what really worked.
//!
//! [`prepare`] makes the exec user and the work directory and proves both; [`setup`] runs the caller's commands. Every
//! step ends in a [`Step`] of the report.
//!
//! **Invariant:** a step is `success` only when a probe saw it work; the absence of an error is no probe.
//! **Invariant:** a program of ours that runs inside is constant; what varies reaches it as arguments.
//! **Invariant:** owner and mode of what lies in a bind are never changed.

#![warn(missing_docs)]

mod error;
mod prepare;
mod report;
mod setup;
mod user;

pub use error::{Error, Result};
pub use prepare::{Prepared, Workspace, prepare};
pub use report::{Item, Report, Status, Step};
pub use setup::{Setup, setup};
pub use user::{Accounts, InvalidUser, UserAsk, accounts};
