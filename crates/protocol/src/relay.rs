//! The ways out of a container: to the host's proxy, and the tries whether there is any other.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::MAX_SESSION;

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

/// Relays connections to the host's proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenProxyPorts {
    /// Bytes of the payload that are the token, at most [`MAX_TOKEN`].
    pub token: u32,
    /// Bytes in the payload and what follows by [`Request::More`](crate::Request::More), at most [`MAX_SESSION`]. What is
    /// behind the token is the text of `/.coracle/run/gitconfig`; without any the file is left as it is.
    pub bytes: u32,
    /// Connections get to the host by its channels, [`Request::Outlet`](crate::Request::Outlet), and else by [`API_SOCKET`] and
    /// [`EGRESS_SOCKET`].
    #[serde(default)]
    pub by_link: bool,
    /// Where the host listens on a network that both are on: for [`API_PORT`], then for [`EGRESS_PORT`]. In the place of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<[SocketAddr; 2]>,
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
