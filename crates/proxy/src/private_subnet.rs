//! The network that a proxy shares with one container.

use std::net::IpAddr;

use ipnet::IpNet;

/// A network of one container and this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateSubnet {
    /// The address of this host.
    pub gateway: IpAddr,
    /// The addresses of the network, the container's among them.
    pub subnet: IpNet,
}

impl PrivateSubnet {
    /// Whether a connection from there is the container's: programs of this host come from the gateway, and containers of
    /// other networks from elsewhere.
    #[must_use]
    pub fn is_container(&self, peer: IpAddr) -> bool {
        peer != self.gateway && self.subnet.contains(&peer)
    }
}
