//! The network that a proxy shares with one container.

use std::net::IpAddr;

use ipnet::IpNet;

/// A network of one container and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrivateSubnet {
    /// The address of the host.
    pub gateway: IpAddr,
    /// The addresses of the network, including the container's.
    pub subnet: IpNet,
}

impl PrivateSubnet {
    /// Whether a connection comes from the container: programs on the host connect from the gateway's address,
    /// containers of other networks from outside the subnet.
    #[must_use]
    pub fn is_container(&self, peer: IpAddr) -> bool {
        peer != self.gateway && self.subnet.contains(&peer)
    }
}
