//! An ssh server for one container, on a pair of streams: it listens on no port and starts no daemon in the container.
//!
//! An OpenSSH client starts it as its `ProxyCommand`, as configured by [`ClientConfig`]. Commands, terminals, files and
//! ports use the link to the container's guest, under the policy of `exec`, and are recorded in the audit trail.
//!
//! **Invariant:** only the client key in Coracle's state directory is accepted. No other method is offered.
//! **Invariant:** memory for input that the container has not read is bounded.

#![warn(missing_docs)]

mod channel_input;
mod client_config;
mod command_channel;
mod input_gate;
mod keys;
mod port_channel;
mod server;

pub use self::client_config::{ClientConfig, HOST_SUFFIX, HostEntry, container_of_host};
pub use self::keys::SshKeys;
pub use self::server::serve;
