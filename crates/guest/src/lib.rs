//! The supervisor that runs inside a container as its PID 1.
//!
//! [`protocol`] is what host and guest say. [`Supervisor`] runs commands on a
//! [`ProcessBackend`](machine::ProcessBackend) and remembers them, [`serve`] speaks with one host, [`init`](init::init) is PID 1 itself. A
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
//!
//! Modules know only what stands above them here: `os` what Linux is asked for, `files`
//! by their paths, then services that see no channel (`jobs`,
//! `workspace`, `net`, `secrets`), then `server` with connections and what they may ask, then `init`. `run` is PID 1 of a
//! container without a supervisor, and knows only `os`. `applets` are commands of their own.

#![warn(missing_docs)]

mod os;

mod files;

mod jobs;
mod net;
mod secrets;
mod workspace;

mod server;

pub mod init;

pub mod run;

pub mod exit_status;

pub mod applets;

pub use applets::secret_fd as inherit;
pub use coracle_protocol as protocol;
pub use os::container::Container;
pub use os::machine;
pub use server::codec;
pub use server::connection::serve;
pub use server::services::Supervisor;
