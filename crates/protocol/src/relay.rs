//! The ways out of a container: to the host's proxy, and the tries whether there is any other.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::body::Bytes;

/// The port of 127.0.0.1 that leads to names outside.
pub const EGRESS_PORT: u16 = 3128;

/// The port of 127.0.0.1 that leads to models and repositories.
pub const API_PORT: u16 = 3129;

/// Sockets of the host's proxy: for models and repositories, and for names outside.
pub const API_SOCKET: &str = "/.coracle/proxy/api.sock";
/// See [`API_SOCKET`].
pub const EGRESS_SOCKET: &str = "/.coracle/proxy/egress.sock";

/// Bytes of a token, at most.
pub const MAX_TOKEN: usize = 100;

/// Addresses that a probe tries, at most.
pub const MAX_PROBED: usize = 64;

/// Listens on two ports of the container's loopback and relays what comes there to the host's proxy, from now on with this
/// token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenProxyPorts {
    /// Visible characters, at most [`MAX_TOKEN`].
    pub token: Bytes,
    /// The text of `/.coracle/run/gitconfig`; without any the file is left as it is.
    pub git_config: Bytes,
    /// Connections get to the host by its channels, [`AcceptTunnel`], and else by [`API_SOCKET`] and [`EGRESS_SOCKET`].
    pub by_link: bool,
    /// Where the host listens on a network that both are on: for [`API_PORT`], then for [`EGRESS_PORT`]. In the place of both.
    pub at: Option<[SocketAddr; 2]>,
}

/// Waits for the next connection to a port that is relayed by channels: an event when there is one, then its bytes as data,
/// the token before them. Each side says when nothing more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptTunnel {
    /// [`API_PORT`] or [`EGRESS_PORT`].
    pub port: u16,
}

/// Tries what can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeEgress {
    /// `address:port` each, to be connected to directly.
    pub tcp: Vec<String>,
    /// `address:port` each, to be asked for a name by DNS, directly.
    pub udp: Vec<String>,
    /// `name:port` that the proxy is asked for.
    pub name: String,
    /// Milliseconds for each try; all are made at once.
    pub within_ms: u64,
}

/// What could be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressReport {
    /// Addresses that answered directly; one that refuses the connection has answered.
    pub reached: Vec<String>,
    /// The status that the proxy gave for the name; none when nobody answered.
    pub egress: Option<u16>,
    /// The status of the proxy's own health.
    pub api: Option<u16>,
}
