//! The supervisor that runs inside a container as its PID 1.
//!
//! [`wire`] is what host and guest say. [`Supervisor`] runs commands on a
//! [`Machine`](machine::Machine) and remembers them, [`serve`] speaks with one host, [`init`](init::init) is PID 1 itself. A
//! host's tests run the same supervisor in their own process.
//!
//! **Invariant:** nothing that is received is allocated by a number that was received: lengths are checked first.
//! **Invariant:** a command is ended with everything that it started, however that hid; another command never is.
//! **Invariant:** no command runs without the filter.
//! **Invariant:** where root inside is root outside, no command sets a set-id bit but by asking, and then on the
//! container's own files only.
//! **Invariant:** memory is bounded, whatever commands print: what is too much goes to a file, and then is counted.
//! **Invariant:** words, environment and input of a command are bytes from frame to `execve`; no shell but the one asked for.
//! **Invariant:** what lets a container out is a token in this memory, and no file, variable or word.
//! **Invariant:** nothing here knows an engine.

#![warn(missing_docs)]

mod answer;
mod channel;
pub mod codec;
mod command;
mod container;
mod content;
mod door;
mod files;
mod filter;
pub mod git_credential;
pub mod inherit;
pub mod init;
mod job;
mod lifeline;
pub mod machine;
mod oom;
mod outlet;
mod output;
mod outside;
pub mod pipe;
pub mod port;
mod probe;
mod quota;
mod reap;
mod relay;
mod secrets;
mod serve;
mod session;
mod setid;
pub mod shell;
mod space;
mod start;
mod supervisor;
pub mod sweep;
mod tree;
mod user;
mod wait;
mod walk;

pub use container::Container;
pub use coracle_protocol as wire;
pub use serve::serve;
pub use supervisor::Supervisor;
