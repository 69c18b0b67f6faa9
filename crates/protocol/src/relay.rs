//! The container's connections to the host's proxy, and a probe of its network.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::body::Bytes;

/// The port of 127.0.0.1 for connections to other hosts.
pub const EGRESS_PORT: u16 = 3128;

/// The port of 127.0.0.1 for models and repositories.
pub const API_PORT: u16 = 3129;

/// Socket of the host's proxy for models and repositories.
pub const API_SOCKET: &str = "/.coracle/proxy/api.sock";
/// Socket of the host's proxy for connections to other hosts.
pub const EGRESS_SOCKET: &str = "/.coracle/proxy/egress.sock";

/// Longest token in bytes.
pub const MAX_TOKEN: usize = 100;

/// Limit of addresses in a probe.
pub const MAX_PROBED: usize = 64;

/// Begin of an entry of [`EgressReport::reached`] for a network interface.
pub const INTERFACE: &str = "interface ";

/// Listens on two ports of the container's loopback interface and forwards connections to the host's proxy, with this token
/// from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenProxyPorts {
    /// Visible characters, at most [`MAX_TOKEN`].
    pub token: Bytes,
    /// The text of `/.coracle/run/gitconfig`; if empty, the file does not change.
    pub git_config: Bytes,
    /// Whether connections reach the host through [`AcceptTunnel`] channels instead of [`API_SOCKET`] and [`EGRESS_SOCKET`].
    pub by_link: bool,
    /// Addresses of the host on a shared network, for [`API_PORT`] and [`EGRESS_PORT`], used instead of both.
    pub at: Option<[SocketAddr; 2]>,
}

/// Waits for the next connection to a port that is forwarded through channels: an event when there is one, then its bytes as
/// data, the token first. Each side marks its last data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptTunnel {
    /// [`API_PORT`] or [`EGRESS_PORT`].
    pub port: u16,
}

/// Probes which addresses can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeEgress {
    /// `address:port` each, for direct connections.
    pub tcp: Vec<String>,
    /// `address:port` each, for direct DNS queries.
    pub udp: Vec<String>,
    /// `name:port` to request from the proxy.
    pub name: String,
    /// Milliseconds for each direct attempt; all are made concurrently.
    pub within_ms: u64,
}

/// The result of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EgressReport {
    /// Addresses that responded directly, including refused connections. With any address in [`ProbeEgress::tcp`], also
    /// the names of interfaces other than the loopback that have a route or an address, behind [`INTERFACE`].
    pub reached: Vec<String>,
    /// The proxy's status for the name; `None` without a response.
    pub egress: Option<u16>,
    /// The status of the proxy's health endpoint.
    pub api: Option<u16>,
}
