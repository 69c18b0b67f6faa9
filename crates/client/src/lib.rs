//! The host's client of a guest.
//!
//! A [`Link`] is one connection that all calls of this process share. A [`Dial`] connects when it is first needed, and again
//! after it broke. Calls that only read are then repeated; a command is followed on the new connection.
//!
//! ```no_run
//! use coracle_client::{Link, LinkSettings, SocketAt};
//! use coracle_types::{Command, ContainerPath, Exec, Ids, ProcessId};
//!
//! # async fn example(dir: std::path::PathBuf, pid1: u32) -> Result<(), Box<dyn std::error::Error>> {
//! // The directory of the guest's socket, and the container's PID 1 as the engine reports it.
//! let guest = SocketAt { dir, pid1: ProcessId::from_pid(pid1) };
//! let link = Link::by_socket(&guest, LinkSettings::default()).await.ok_or("no guest listens there")?;
//! let exec = Exec::new(Command::shell("make test"), Ids::ROOT, ContainerPath::parse("/workspace")?);
//! let output = link.exec(exec).await?;
//! println!("{:?}: {}", output.exit, output.stdout.text());
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant:** messages of a guest are untrusted. Each is checked against the calls that were made and the window that
//! was given; memory is bounded by this program's limits, and an invalid message ends the connection and its calls.
//! **Invariant:** a command is never started twice. The host chooses its id, and a guest refuses an id that it knows.
//! **Invariant:** a command whose end was not received is [`Error::GuestLost`], never a result.

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
