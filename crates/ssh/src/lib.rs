//! An ssh server for one container, on a pair of streams: no port is listened at, and nothing runs in the container for it.
//!
//! An OpenSSH client starts it as its `ProxyCommand`, by the configuration that [`ClientConfig`] prints. Commands, terminals,
//! files and ports go over the link to the container's guest, under the policy of `exec`, and stand in the audit trail.
//!
//! **Invariant:** only the client key in Coracle's state directory is accepted. No password and no other method is offered.
//! **Invariant:** memory for input that the container does not read yet is bounded.

#![warn(missing_docs)]

mod audited;
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
