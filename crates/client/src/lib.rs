//! The host's client of a guest.
//!
//! A [`Link`] is one connection that all calls of this process share. It is made when it is first needed, by a [`Dial`],
//! and anew when it broke. Calls that only ask are then asked again; a command is followed where it stands.
//!
//! **Invariant:** what a guest sends is hostile. It is held against what was asked for and the room it was given; memory
//! is bounded by our numbers, and whatever does not fit ends the connection and wakes its calls.
//! **Invariant:** a command is never started twice. Its id is ours, and a guest refuses one that it has seen.
//! **Invariant:** a command whose end was not heard is [`Error::GuestLost`], never a result.

#![warn(missing_docs)]

mod call;
mod channels;
mod codec;
mod command;
mod connection;
mod dial;
mod exec;
mod files;
mod input;
mod interactive;
mod jobs;
mod link;
mod output;
mod payload;
mod port_forward;
mod relay;
mod scan;
mod session;
mod terminal;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
mod tunnel;
mod workspace;

pub use coracle_protocol as protocol;
#[cfg(doc)]
use coracle_types::Error;

pub use self::dial::{Dial, GuestStream, Liveness, Mounts, SocketAt, Transport, by_socket};
pub use self::files::{FileContent, WriteFile};
pub use self::interactive::{InteractiveCommand, start_interactive};
pub use self::link::{Link, LinkSettings, WeakLink};
pub use self::port_forward::{PortForward, forward_port, join_address, join_port};
pub use self::relay::Upstream;
pub use self::scan::{ScanOptions, ScanReport};
pub use self::session::SecretFile;
pub use self::terminal::{AttachOptions, TerminalOutputPiece};
pub use self::tunnel::Tunnel;
