//! Serves ports of a container on the host: a host process in the container's network namespace.
//!
//! Standard input is a socket on which one message arrives: a text, and descriptors of the container's PID 1, of its
//! namespaces, and of sockets that the host has bound. The reply is "ready" once the ports are served, and otherwise the
//! reason. The process connects what arrives at the sockets to ports inside, and ends with the container. It does not
//! interpret the data that it forwards.
#![expect(unsafe_code, reason = "a descriptor is watched by its number")]

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg};
use rustix::process::{Gid, Uid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Deserialize;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The reply of a forwarder that serves its ports.
const READY: &[u8] = b"ready";

const MAX_TEXT_BYTES: usize = 64 << 10;

/// `nobody`, by the kernel's convention.
const NOBODY: u32 = 65534;

/// A UDP peer that is silent for this long is removed.
const UDP_IDLE: Duration = Duration::from_secs(60);

/// Concurrent peers of one UDP port.
const MAX_UDP_PEERS: usize = 256;

const MAX_DATAGRAM_BYTES: usize = 64 << 10;

/// Delay after a socket's error.
const RETRY: Duration = Duration::from_millis(50);

/// The message from the host.
#[derive(Debug, Deserialize)]
struct ForwardRequest {
    /// Whether to enter a user namespace before the network namespace.
    user_namespace: bool,
    ports: Vec<ForwardedPort>,
}

/// One port, and the addresses to try in order.
#[derive(Clone, Debug, Deserialize)]
struct ForwardedPort {
    protocol: ForwardProtocol,
    targets: Vec<SocketAddr>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ForwardProtocol {
    Tcp,
    Udp,
}

/// A forwarder that has entered the container's network and dropped its privileges.
#[derive(Debug)]
pub struct Forwarder {
    container: OwnedFd,
    ports: Vec<(ForwardedPort, OwnedFd)>,
}

impl Forwarder {
    /// Reads the message and enters the namespaces. The process must still have one thread.
    ///
    /// # Errors
    /// Fails if the message is incomplete, or if a namespace cannot be entered.
    pub fn receive() -> io::Result<Self> {
        let (text, fds) = receive_message()?;
        let request: ForwardRequest = serde_json::from_slice(&text)?;
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(|| io::Error::other("a descriptor is missing"));
        let (container, network) = (next()?, next()?);
        if request.user_namespace {
            move_into_link_name_space(next()?.as_fd(), Some(LinkNameSpaceType::User))?;
        }
        let ports = request.ports.into_iter().map(|it| Ok((it, next()?))).collect::<io::Result<_>>()?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        drop_privileges(request.user_namespace)?;
        Ok(Self { container, ports })
    }

    /// Serves the ports until the container ends.
    ///
    /// # Errors
    /// Fails if a descriptor is not a socket.
    pub async fn run(self) -> io::Result<()> {
        // SAFETY: the descriptor is owned and moves into the registration, so it stays open as long.
        let container = unsafe { AsyncFd::register_with_interest(self.container, Interest::READABLE) }?;
        for (port, socket) in self.ports {
            match port.protocol {
                ForwardProtocol::Tcp => {
                    let socket = std::net::TcpListener::from(socket);
                    socket.set_nonblocking(true)?;
                    tokio::spawn(serve_tcp(TcpListener::from_std(socket)?, port.targets.into()));
                }
                ForwardProtocol::Udp => {
                    let socket = std::net::UdpSocket::from(socket);
                    socket.set_nonblocking(true)?;
                    tokio::spawn(serve_udp(UdpSocket::from_std(socket)?.into(), port.targets));
                }
            }
        }
        rustix::net::send(io::stdin(), READY, SendFlags::NOSIGNAL)?;
        container.readable().await.map(drop)
    }
}

/// Reports to the host why the ports are not served. If the host does not read, the message is lost.
pub fn report(error: &io::Error) {
    let _ = rustix::net::send(io::stdin(), error.to_string().as_bytes(), SendFlags::NOSIGNAL);
}

fn receive_message() -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; MAX_TEXT_BYTES];
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(io::stdin(), &mut [IoSliceMut::new(&mut text)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            fds.extend(sent);
        }
    }
    text.truncate(received.bytes);
    Ok((text, fds))
}

/// Connecting and copying need no privileges. Root in a user namespace of the container has none on the host already.
fn drop_privileges(in_user_namespace: bool) -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    if !in_user_namespace && rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    Ok(())
}

async fn serve_tcp(listener: TcpListener, targets: Arc<[SocketAddr]>) {
    loop {
        match listener.accept().await {
            Ok((outer, _)) => drop(tokio::spawn(forward_stream(outer, Arc::clone(&targets)))),
            // No free descriptor: closed connections will free some.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

async fn forward_stream(mut outer: TcpStream, targets: Arc<[SocketAddr]>) {
    let Some(mut inner) = connect(&targets).await else { return };
    // A broken connection ends both sides; TCP has no further error to pass on.
    let _ = copy_bidirectional(&mut outer, &mut inner).await;
}

async fn connect(targets: &[SocketAddr]) -> Option<TcpStream> {
    for target in targets {
        if let Ok(stream) = TcpStream::connect(target).await {
            return Some(stream);
        }
    }
    None
}

/// Opens one socket inside per peer, so that replies reach that peer.
async fn serve_udp(outer: Arc<UdpSocket>, targets: Vec<SocketAddr>) {
    let Some(target) = targets.first().copied() else { return };
    let mut peers: HashMap<SocketAddr, UdpPeer> = HashMap::new();
    let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
    loop {
        let Ok((count, from)) = outer.recv_from(&mut buffer).await else {
            // A permanent error must not cause a busy loop.
            tokio::time::sleep(RETRY).await;
            continue;
        };
        peers.retain(|_, peer| !peer.replies.is_finished());
        let is_new = !peers.contains_key(&from) && peers.len() < MAX_UDP_PEERS;
        if is_new && let Ok(peer) = UdpPeer::new(Arc::clone(&outer), from, target).await {
            peers.insert(from, peer);
        }
        if let Some(peer) = peers.get(&from) {
            // UDP permits the loss of a datagram.
            let _ = peer.inner.send(&buffer[..count]).await;
        }
    }
}

struct UdpPeer {
    inner: Arc<UdpSocket>,
    replies: JoinHandle<()>,
}

impl UdpPeer {
    async fn new(outer: Arc<UdpSocket>, peer: SocketAddr, target: SocketAddr) -> io::Result<Self> {
        let any = if target.is_ipv4() { SocketAddr::from(([0; 4], 0)) } else { SocketAddr::from(([0_u16; 8], 0)) };
        let inner = Arc::new(UdpSocket::bind(any).await?);
        inner.connect(target).await?;
        let replies = tokio::spawn(forward_replies(Arc::clone(&inner), outer, peer));
        Ok(Self { inner, replies })
    }
}

async fn forward_replies(inner: Arc<UdpSocket>, outer: Arc<UdpSocket>, peer: SocketAddr) {
    let mut buffer = vec![0; MAX_DATAGRAM_BYTES];
    while let Ok(received) = timeout(UDP_IDLE, inner.recv(&mut buffer)).await {
        // Refused: no program listens inside yet.
        let Ok(count) = received else { continue };
        let _ = outer.send_to(&buffer[..count], peer).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_stream_reaches_the_first_open_target_and_each_direction_closes_separately() {
        let (outer, inner) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (at, inside) = (outer.local_addr().unwrap(), inner.local_addr().unwrap());
        let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        tokio::spawn(serve_tcp(outer, Arc::new([unused, inside])));
        let mut client = TcpStream::connect(at).await.unwrap();
        client.write_all(b"request").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut server, _) = inner.accept().await.unwrap();
        let mut text = String::new();
        server.read_to_string(&mut text).await.unwrap();
        server.write_all(b" and reply").await.unwrap();
        drop(server);
        client.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "request and reply");
    }

    #[tokio::test]
    async fn udp_replies_reach_their_peer() {
        let (outer, inner) =
            (UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let (at, inside) = (outer.local_addr().unwrap(), inner.local_addr().unwrap());
        tokio::spawn(serve_udp(outer.into(), vec![inside]));
        let mut buffer = [0; 16];
        let clients = [UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap()];
        let mut peers = Vec::new();
        for (client, text) in clients.iter().zip(["one", "two"]) {
            client.send_to(text.as_bytes(), at).await.unwrap();
            let (count, peer) = inner.recv_from(&mut buffer).await.unwrap();
            assert_eq!(&buffer[..count], text.as_bytes());
            peers.push(peer);
        }
        for (client, peer) in clients.iter().zip(&peers).rev() {
            inner.send_to(peer.port().to_string().as_bytes(), peer).await.unwrap();
            let (count, from) = client.recv_from(&mut buffer).await.unwrap();
            assert_eq!((&buffer[..count], from), (peer.port().to_string().as_bytes(), at));
        }
    }
}
