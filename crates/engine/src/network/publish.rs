//! Publishes ports of containers on the host: binds sockets, and starts a helper process that serves them.
//!
//! The process is the guest's program in the container's network namespace. It receives the bound sockets, so it needs no
//! privileges, and ends with the container.

use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use coracle_host::process::{Invocation, spawn_detached};
use coracle_runtime::{Port, Protocol, PublishedPort};
use coracle_types::{Capability, Error, ProcessId, Result};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, sendmsg,
    socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;

use super::attach::Attachment;
use super::helper_process;
use crate::blocking::blocking;
use crate::config::NetworkConfig;
use crate::error::refused;

/// The kernel passes at most 253 descriptors at once.
const MAX_PORTS: usize = 240;

/// How long a forwarder may take to start.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// A bound socket of the host.
#[derive(Debug)]
pub(super) struct BoundPort {
    pub(super) port: PublishedPort,
    socket: OwnedFd,
}

/// Binds all ports of a container on the host.
///
/// # Errors
/// `PortTaken` if another program uses a port; `Host` if this user or host cannot bind it; `Engine` for too many ports.
pub(super) fn bind(config: &NetworkConfig) -> Result<Vec<BoundPort>> {
    if config.ports.len() > MAX_PORTS {
        return Err(refused("publish", format_args!("a container publishes at most {MAX_PORTS} ports")));
    }
    config.ports.iter().map(|it| bind_one(it, config.ports_bind)).collect()
}

fn bind_one(port: &Port, address: IpAddr) -> Result<BoundPort> {
    let wanted = port.host.unwrap_or(0);
    let at = SocketAddr::new(address, wanted);
    let bound = match port.protocol {
        Protocol::Tcp => TcpListener::bind(at).and_then(|it| Ok((it.local_addr()?, OwnedFd::from(it)))),
        Protocol::Udp => UdpSocket::bind(at).and_then(|it| Ok((it.local_addr()?, OwnedFd::from(it)))),
    };
    let (bound, socket) = bound.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => Error::PortTaken(wanted),
        _ => Error::Host { what: format!("cannot publish port {wanted} at {address}"), source },
    })?;
    let port = PublishedPort { container: port.container, host: bound.port(), address, protocol: port.protocol };
    Ok(BoundPort { port, socket })
}

/// Starts the process that serves these ports, and waits until it does.
pub(super) async fn serve(attachment: &Attachment, inside: Option<IpAddr>, ports: &[BoundPort]) -> Result<ProcessId> {
    let Some(guest) = &attachment.guest else {
        return Err(crate::error::unsupported(Capability::Publish));
    };
    let failed = |source| Error::Host { what: "cannot publish ports".into(), source };
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|it| failed(it.into()))?;
    hand_over(attachment, inside, ports, &ours).map_err(failed)?;
    let invocation =
        Invocation { dir: Some("/".into()), ..Invocation::new(guest, ["forward", attachment.id.as_str()]) };
    let pid = spawn_detached(&invocation, File::from(theirs))?;
    let process = ProcessId::from_pid(pid).ok_or_else(|| failed(io::Error::other("the forwarder ended")))?;
    match blocking("wait for the forwarder", move || wait_ready(&ours).map_err(failed)).await {
        Ok(()) => Ok(process),
        Err(err) => {
            // The first error is the one to report.
            let _ = helper_process::end(&process);
            Err(err)
        }
    }
}

/// Waits for the forwarder's answer.
fn wait_ready(from: &OwnedFd) -> io::Result<()> {
    if !helper_process::is_readable_within(from, READY_TIMEOUT)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut answer = [0; 1024];
    let (count, _) = rustix::net::recv(from, &mut answer, RecvFlags::empty())?;
    match &answer[..count] {
        b"ready" => Ok(()),
        b"" => Err(io::Error::other("the forwarder ended")),
        why => Err(io::Error::other(String::from_utf8_lossy(why).into_owned())),
    }
}

/// Sends the forwarder's configuration and sockets, which it reads from standard input when it starts.
fn hand_over(attachment: &Attachment, inside: Option<IpAddr>, ports: &[BoundPort], to: &OwnedFd) -> io::Result<()> {
    let pid = attachment.pid;
    let container = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let container = pidfd_open(container, PidfdFlags::empty())?;
    let namespace = |kind: &str| File::open(Path::new("/proc").join(pid.to_string()).join("ns").join(kind));
    let network = namespace("net")?;
    let user = if attachment.privileges.is_root() { None } else { Some(namespace("user")?) };
    let described: Vec<_> = ports.iter().map(|it| describe(&it.port, inside)).collect();
    let message = json!({ "user_namespace": user.is_some(), "ports": described }).to_string();
    let fds: Vec<BorrowedFd<'_>> = [container.as_fd(), network.as_fd()]
        .into_iter()
        .chain(user.iter().map(File::as_fd))
        .chain(ports.iter().map(|it| it.socket.as_fd()))
        .collect();
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(to, &[IoSlice::new(message.as_bytes())], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Lists the addresses to try inside: a service may listen on all addresses, only on the container's own, or only on one of
/// the two loopback addresses.
fn describe(port: &PublishedPort, inside: Option<IpAddr>) -> serde_json::Value {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    let targets: Vec<_> =
        inside.into_iter().chain(loopback).map(|it| SocketAddr::new(it, port.container).to_string()).collect();
    json!({ "protocol": port.protocol, "targets": targets })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(host: Option<u16>, protocol: Protocol) -> NetworkConfig {
        let ports = vec![Port { container: 80, host, protocol }];
        let mode = crate::config::NetworkMode::Outgoing;
        NetworkConfig { mode, ports, ports_bind: IpAddr::from([127, 0, 0, 1]) }
    }

    #[test]
    fn an_address_that_the_host_lacks_is_no_taken_port() {
        let ports_bind = IpAddr::from([203, 0, 113, 9]);
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let failed = bind(&NetworkConfig { ports_bind, ..config(Some(8080), protocol) }).unwrap_err();
            assert!(matches!(&failed, Error::Host { source, .. } if source.kind() == io::ErrorKind::AddrNotAvailable));
            assert_eq!(failed.to_string(), "cannot publish port 8080 at 203.0.113.9");
        }
    }

    #[test]
    fn more_ports_than_a_container_publishes_are_refused_by_their_number() {
        let config = config(None, Protocol::Tcp);
        let failed = bind(&NetworkConfig { ports: vec![config.ports[0]; MAX_PORTS + 1], ..config }).unwrap_err();
        assert!(failed.to_string().contains("a container publishes at most 240 ports"), "{failed}");
    }

    #[test]
    fn a_free_port_is_found_and_a_taken_one_refused() {
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            let first = bind(&config(None, protocol)).unwrap();
            let port = first[0].port.host;
            let second = bind(&config(Some(port), protocol));
            assert!(matches!(second, Err(Error::PortTaken(it)) if it == port), "{second:?}");
            drop(first);
            assert_eq!(bind(&config(Some(port), protocol)).unwrap()[0].port.host, port);
        }
    }
}
