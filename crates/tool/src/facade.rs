//! Containers for Rust programs, without a second process: [`Client`], [`Container`], [`Job`] and their typed results.
//!
//! Every method is a call of an operation, by the same path as that of every other front end. [`Client::call`] reaches the
//! operations without a method here.

mod client;
mod command_stream;
mod container;
mod job;
mod options;
mod results;
mod session;

pub use self::client::Client;
pub use self::command_stream::CommandStream;
pub use self::container::ClientContainer as Container;
pub use self::job::ClientJob as Job;
pub use self::options::{ContainerOptions, ExecOptions, WaitOptions};
pub use self::results::{CommandResult, JobInfo, OutputPage, Removed, SnapshotInfo, Waited};
pub use self::session::CallFields;
