//! The supervisor that runs inside a container as its PID 1.
//!
//! [`protocol`] has the messages between host and guest. [`Supervisor`] runs commands on a
//! [`ProcessBackend`](machine::ProcessBackend) and records them as jobs, [`serve`] handles the connection of one host,
//! [`init`](init::init) is PID 1 itself. Tests of the host run the same supervisor in their own process.
//!
//! **Invariant:** no received number decides the size of an allocation before it is checked against a limit.
//! **Invariant:** ending a command ends every process that it started, even one that hides, and no process of another
//! command.
//! **Invariant:** every command runs under the seccomp filter.
//! **Invariant:** where root inside is root outside, a command sets a set-id bit only through the guest, and only on the
//! container's own files.
//! **Invariant:** memory is bounded whatever commands print: output beyond the limit is spilled to a file, and beyond
//! that file's limit it is only counted.
//! **Invariant:** arguments, environment and input of a command are bytes from frame to `execve`; no shell runs unless
//! the caller requested one.
//! **Invariant:** the egress token exists in this memory only, never in a file, a variable or an argument.
//! **Invariant:** nothing here depends on the engine.
//!
//! A module uses only the modules before it: `os` wraps Linux, `files` opens paths, then services that know no
//! connection (`jobs`, `workspace`, `net`, `secrets`), then `server` with connections and the requests that they may
//! send, then `init`. `run` is PID 1 of a container without a supervisor, and uses only `os`. `applets` are separate
//! commands.

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
mod atomic;

pub use applets::secret_fd as inherit;
pub use coracle_protocol as protocol;
pub use os::container::Container;
pub use os::machine;
pub use server::codec;
pub use server::connection::serve;
pub use server::services::Supervisor;
