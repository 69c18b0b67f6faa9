//! Two ports on the container's loopback interface that forward only to the host's proxy.
//!
//! Programs inside need no secret for it: the guest sends the token from its memory at the start of each connection.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::net::tunnel::TunnelPorts;
use crate::protocol::relay::{API_PORT, API_SOCKET, EGRESS_PORT, EGRESS_SOCKET};

/// Concurrent connections of each port; more wait to be accepted.
const MAX_CONNECTIONS: usize = 128;

/// Delay after a failed accept, for example if there is no free descriptor.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The proxy ports of a container.
#[derive(Debug, Default)]
pub(crate) struct ProxyPorts {
    state: Arc<Mutex<PortState>>,
    /// Channels of the host that wait for a connection.
    pub(crate) tunnels: Arc<TunnelPorts>,
}

/// `Debug` must not print the token.
#[derive(Default)]
struct PortState {
    token: Option<Arc<[u8]>>,
    upstream: Upstream,
    listening: bool,
}

/// The target of connections.
#[derive(Clone, Copy, Default)]
pub(crate) enum Upstream {
    /// The Unix sockets of the proxy.
    #[default]
    Sockets,
    /// The host, through channels of its connection to the guest.
    Link,
    /// Addresses on a network that host and container share: for the API port, then for the egress port.
    At([SocketAddr; 2]),
}

impl std::fmt::Debug for PortState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortState").field("listening", &self.listening).finish_non_exhaustive()
    }
}

impl ProxyPorts {
    fn state(&self) -> MutexGuard<'_, PortState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a token was set.
    pub(crate) fn has_token(&self) -> bool {
        self.state().token.is_some()
    }

    /// Sets the token and the target of new connections, and starts to listen.
    pub(crate) async fn open(&self, token: &[u8], upstream: Upstream) -> io::Result<()> {
        let ports = [(API_PORT, Path::new(API_SOCKET)), (EGRESS_PORT, Path::new(EGRESS_SOCKET))];
        // A guest in a test would listen on the host's own loopback interface.
        if std::process::id() == 1 {
            return self.listen(token, upstream, ports).await;
        }
        self.state().token = Some(token.into());
        Ok(())
    }

    /// Sets the token, and listens unless it already does.
    async fn listen(&self, token: &[u8], upstream: Upstream, ports: [(u16, &'static Path); 2]) -> io::Result<()> {
        if !self.state().listening {
            let mut bound = Vec::new();
            for (number, socket) in ports {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).await?;
                let (state, tunnels) = (self.state.clone(), self.tunnels.clone());
                bound.push(ProxyPort { number, socket, listener, state, tunnels });
            }
            self.state().listening = true;
            for port in bound {
                tokio::spawn(port.accept());
            }
        }
        let mut state = self.state();
        (state.token, state.upstream) = (Some(token.into()), upstream);
        Ok(())
    }
}

/// A port on the loopback interface whose connections are forwarded to the proxy.
struct ProxyPort {
    number: u16,
    socket: &'static Path,
    listener: TcpListener,
    state: Arc<Mutex<PortState>>,
    tunnels: Arc<TunnelPorts>,
}

impl ProxyPort {
    async fn accept(self) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => self.forward(stream, permit),
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Without a token the connection is dropped. If the proxy is unreachable, it is closed, too: a program inside gets no
    /// other error.
    fn forward(&self, stream: TcpStream, permit: OwnedSemaphorePermit) {
        let (token, upstream) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (state.token.clone(), state.upstream)
        };
        let Some(token) = token else { return };
        let _ = stream.set_nodelay(true);
        let (number, socket, tunnels) = (self.number, self.socket, self.tunnels.clone());
        tokio::spawn(async move {
            let _ = match upstream {
                Upstream::Link => return tunnels.dispatch(number, (stream, preamble(&token), permit)).await,
                Upstream::Sockets => pass(stream, UnixStream::connect(socket).await, &token).await,
                Upstream::At([api, egress]) => {
                    let at = if number == API_PORT { api } else { egress };
                    pass(stream, TcpStream::connect(at).await, &token).await
                }
            };
            drop(permit);
        });
    }
}

/// Connects to the host for each connection, because the host's process may have been replaced.
async fn pass(
    mut inside: TcpStream,
    host: io::Result<impl AsyncRead + AsyncWrite + Unpin>,
    token: &[u8],
) -> io::Result<()> {
    let mut host = host?;
    host.write_all(&preamble(token)).await?;
    copy_bidirectional(&mut inside, &mut host).await.map(drop)
}

/// The bytes that the host reads before those of the connection.
fn preamble(token: &[u8]) -> Vec<u8> {
    [b"CORACLE/1 ", token, b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixListener;

    use super::*;

    /// A socket path with a static lifetime.
    fn socket(dir: &tempfile::TempDir) -> &'static Path {
        Box::leak(dir.path().join("api.sock").into_boxed_path())
    }

    async fn free_port() -> u16 {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port()
    }

    /// Echoes everything that one connection sends, once the peer has closed its side.
    async fn echo_once(listener: &UnixListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        stream.write_all(&received).await.unwrap();
    }

    async fn exchange(port: u16, text: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.map(|_| reply)
    }

    #[tokio::test]
    async fn the_token_is_sent_first_and_half_closed_connections_work() {
        let dir = tempfile::tempdir().unwrap();
        let (sock, port, other) = (socket(&dir), free_port().await, free_port().await);
        let listener = UnixListener::bind(sock).unwrap();
        let ports = ProxyPorts::default();
        ports.listen(b"one", Upstream::Sockets, [(port, sock), (other, sock)]).await.unwrap();
        let (reply, ()) = tokio::join!(exchange(port, "hello"), echo_once(&listener));
        assert_eq!(reply.unwrap(), "CORACLE/1 one\nhello");
        ports.listen(b"two", Upstream::Sockets, [(port, sock), (other, sock)]).await.unwrap();
        let (reply, ()) = tokio::join!(exchange(other, "hello"), echo_once(&listener));
        assert_eq!(reply.unwrap(), "CORACLE/1 two\nhello", "a second token replaces the first one");
        assert!(!format!("{ports:?}").contains("two"));
    }

    #[tokio::test]
    async fn on_a_shared_network_each_port_forwards_to_its_own_address() {
        let dir = tempfile::tempdir().unwrap();
        let (sock, api, egress) = (socket(&dir), API_PORT, free_port().await);
        let (one, two) = tokio::join!(TcpListener::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0"));
        let (one, two) = (one.unwrap(), two.unwrap());
        let ports = ProxyPorts::default();
        let at = [one.local_addr().unwrap(), two.local_addr().unwrap()];
        // Only the port number decides the target of a connection, not the socket that accepted it.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let listened = listener.local_addr().unwrap().port();
        ports.listen(b"one", Upstream::At(at), [(egress, sock), (free_port().await, sock)]).await.unwrap();
        let (state, tunnels) = (ports.state.clone(), ports.tunnels.clone());
        tokio::spawn(ProxyPort { number: api, socket: sock, listener, state, tunnels }.accept());
        for (port, host) in [(listened, one), (egress, two)] {
            let echo = async {
                let (mut stream, _) = host.accept().await.unwrap();
                let mut received = Vec::new();
                stream.read_to_end(&mut received).await.unwrap();
                stream.write_all(&received).await.unwrap();
            };
            let (reply, ()) = tokio::join!(exchange(port, "hello"), echo);
            assert_eq!(reply.unwrap(), "CORACLE/1 one\nhello");
        }
    }

    #[tokio::test]
    async fn a_restarted_host_is_reached_again() {
        let dir = tempfile::tempdir().unwrap();
        let (sock, port, other) = (socket(&dir), free_port().await, free_port().await);
        let ports = ProxyPorts::default();
        ports.listen(b"one", Upstream::Sockets, [(port, sock), (other, sock)]).await.unwrap();
        assert_eq!(exchange(port, "").await.unwrap_or_default(), "", "without a listener the connection is closed");
        for _ in 0..2 {
            let listener = UnixListener::bind(sock).unwrap();
            let (reply, ()) = tokio::join!(exchange(port, "x"), echo_once(&listener));
            assert_eq!(reply.unwrap(), "CORACLE/1 one\nx");
            drop(listener);
            assert_eq!(exchange(port, "x").await.unwrap_or_default(), "");
            std::fs::remove_file(sock).unwrap();
        }
    }
}
