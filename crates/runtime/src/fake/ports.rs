//! Host ports that a running container holds.

use std::net::{IpAddr, SocketAddr};

use coracle_types::{Error, Result};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};

use crate::{Port, Protocol, PublishedPort};

/// Bound and not listening: the port is taken, and a connection is refused at once.
#[derive(Debug)]
pub(super) struct ReservedPort {
    _socket: OwnedFd,
    pub(super) published: PublishedPort,
}

/// Takes all ports of a container, or none.
pub(super) fn hold(address: IpAddr, ports: &[Port]) -> Result<Vec<ReservedPort>> {
    ports.iter().map(|port| hold_one(address, *port)).collect()
}

fn hold_one(address: IpAddr, port: Port) -> Result<ReservedPort> {
    let wanted = port.host.unwrap_or(0);
    let kind = match port.protocol {
        Protocol::Tcp => SocketType::STREAM,
        Protocol::Udp => SocketType::DGRAM,
    };
    let bound = || -> rustix::io::Result<(OwnedFd, u16)> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, kind, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        bind(&socket, &SocketAddr::new(address, wanted))?;
        let host = SocketAddr::try_from(getsockname(&socket)?)?.port();
        Ok((socket, host))
    };
    let (socket, host) = bound().map_err(|_| Error::PortTaken(wanted))?;
    let published = PublishedPort { container: port.container, host, address, protocol: port.protocol };
    Ok(ReservedPort { _socket: socket, published })
}
