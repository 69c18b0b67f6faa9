//! Two ports of the container's loopback that lead to the host's proxy, and nowhere else.
//!
//! Programs inside need no secret for it: the token goes before each connection, from this memory.

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

/// Connections of each port at once; more wait to be accepted.
const MAX_CONNECTIONS: usize = 128;

/// Between two tries to accept when there are no descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The relays of a container.
#[derive(Debug, Default)]
pub(crate) struct ProxyPorts {
    state: Arc<Mutex<PortState>>,
    /// Channels of the host that wait for a connection.
    pub(crate) outlets: Arc<TunnelPorts>,
}

/// No `Debug` shows the token.
#[derive(Default)]
struct PortState {
    token: Option<Arc<[u8]>>,
    leads: Upstream,
    listening: bool,
}

/// The target of connections.
#[derive(Clone, Copy, Default)]
pub(crate) enum Upstream {
    /// The sockets of the proxy.
    #[default]
    Sockets,
    /// The host, by channels of its link.
    Link,
    /// Addresses of a network that host and container share: for the port of models, then for that of names.
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

    /// Whether a token was given.
    pub(crate) fn has_token(&self) -> bool {
        self.state().token.is_some()
    }

    /// Takes a token from now on, and the way that connections go.
    pub(crate) async fn take(&self, token: &[u8], leads: Upstream) -> io::Result<()> {
        let ways = [(API_PORT, Path::new(API_SOCKET)), (EGRESS_PORT, Path::new(EGRESS_SOCKET))];
        // A guest that is played has the host's own loopback, which is not its to listen on.
        if std::process::id() == 1 {
            return self.listen(token, leads, ways).await;
        }
        self.state().token = Some(token.into());
        Ok(())
    }

    /// Takes a token, and listens unless it does already.
    async fn listen(&self, token: &[u8], leads: Upstream, ways: [(u16, &'static Path); 2]) -> io::Result<()> {
        if !self.state().listening {
            let mut ports = Vec::new();
            for (number, socket) in ways {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).await?;
                let (state, outlets) = (self.state.clone(), self.outlets.clone());
                ports.push(ProxyPort { number, socket, listener, state, outlets });
            }
            self.state().listening = true;
            for port in ports {
                tokio::spawn(port.accept());
            }
        }
        let mut state = self.state();
        (state.token, state.leads) = (Some(token.into()), leads);
        Ok(())
    }
}

/// A port on the loopback interface whose connections go to the proxy.
struct ProxyPort {
    number: u16,
    socket: &'static Path,
    listener: TcpListener,
    state: Arc<Mutex<PortState>>,
    outlets: Arc<TunnelPorts>,
}

impl ProxyPort {
    async fn accept(self) {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => self.forward(stream, place),
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Drops the connection without a token. An unreachable proxy closes it, too: a program inside gets no other sign.
    fn forward(&self, stream: TcpStream, place: OwnedSemaphorePermit) {
        let (token, leads) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (state.token.clone(), state.leads)
        };
        let Some(token) = token else { return };
        let _ = stream.set_nodelay(true);
        let (number, socket, outlets) = (self.number, self.socket, self.outlets.clone());
        tokio::spawn(async move {
            let _ = match leads {
                Upstream::Link => return outlets.hand(number, (stream, preamble(&token), place)).await,
                Upstream::Sockets => pass(stream, UnixStream::connect(socket).await, &token).await,
                Upstream::At([api, egress]) => {
                    let at = if number == API_PORT { api } else { egress };
                    pass(stream, TcpStream::connect(at).await, &token).await
                }
            };
            drop(place);
        });
    }
}

/// Connects anew for each connection, because the host's process may have been replaced.
async fn pass(
    mut inside: TcpStream,
    host: io::Result<impl AsyncRead + AsyncWrite + Unpin>,
    token: &[u8],
) -> io::Result<()> {
    let mut host = host?;
    host.write_all(&preamble(token)).await?;
    copy_bidirectional(&mut inside, &mut host).await.map(drop)
}

/// The bytes that the host reads before a connection's own.
fn preamble(token: &[u8]) -> Vec<u8> {
    [b"CORACLE/1 ", token, b"\n"].concat()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixListener;

    use super::*;

    /// A path that lives as long as the test's process, as a relay's does.
    fn socket(dir: &tempfile::TempDir) -> &'static Path {
        Box::leak(dir.path().join("api.sock").into_boxed_path())
    }

    async fn free_port() -> u16 {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port()
    }

    /// Answers one connection with all that it received, once the other side has ended.
    async fn echo_once(listener: &UnixListener) {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.unwrap();
        stream.write_all(&heard).await.unwrap();
    }

    async fn says(port: u16, text: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map(|_| answer)
    }

    #[tokio::test]
    async fn the_token_goes_before_what_is_said_and_half_a_close_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (sock, port, other) = (socket(&dir), free_port().await, free_port().await);
        let listener = UnixListener::bind(sock).unwrap();
        let relays = ProxyPorts::default();
        relays.listen(b"one", Upstream::Sockets, [(port, sock), (other, sock)]).await.unwrap();
        let (answer, ()) = tokio::join!(says(port, "hello"), echo_once(&listener));
        assert_eq!(answer.unwrap(), "CORACLE/1 one\nhello");
        relays.listen(b"two", Upstream::Sockets, [(port, sock), (other, sock)]).await.unwrap();
        let (answer, ()) = tokio::join!(says(other, "hello"), echo_once(&listener));
        assert_eq!(answer.unwrap(), "CORACLE/1 two\nhello", "a second token takes the first one's place");
        assert!(!format!("{relays:?}").contains("two"));
    }

    #[tokio::test]
    async fn by_a_network_each_port_leads_to_its_own_address_behind_the_token() {
        let dir = tempfile::tempdir().unwrap();
        let (sock, api, egress) = (socket(&dir), API_PORT, free_port().await);
        let (one, two) = tokio::join!(TcpListener::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0"));
        let (one, two) = (one.unwrap(), two.unwrap());
        let relays = ProxyPorts::default();
        let at = [one.local_addr().unwrap(), two.local_addr().unwrap()];
        // Only the port number decides where a connection goes, whatever socket accepted it.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let listened = listener.local_addr().unwrap().port();
        relays.listen(b"one", Upstream::At(at), [(egress, sock), (free_port().await, sock)]).await.unwrap();
        let (state, outlets) = (relays.state.clone(), relays.outlets.clone());
        tokio::spawn(ProxyPort { number: api, socket: sock, listener, state, outlets }.accept());
        for (port, host) in [(listened, one), (egress, two)] {
            let hears = async {
                let (mut stream, _) = host.accept().await.unwrap();
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).await.unwrap();
                stream.write_all(&heard).await.unwrap();
            };
            let (answer, ()) = tokio::join!(says(port, "hello"), hears);
            assert_eq!(answer.unwrap(), "CORACLE/1 one\nhello");
        }
    }

    #[tokio::test]
    async fn a_host_that_went_away_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let (sock, port, other) = (socket(&dir), free_port().await, free_port().await);
        let relays = ProxyPorts::default();
        relays.listen(b"one", Upstream::Sockets, [(port, sock), (other, sock)]).await.unwrap();
        assert_eq!(says(port, "").await.unwrap_or_default(), "", "nobody is there, so it is closed");
        for _ in 0..2 {
            let listener = UnixListener::bind(sock).unwrap();
            let (answer, ()) = tokio::join!(says(port, "x"), echo_once(&listener));
            assert_eq!(answer.unwrap(), "CORACLE/1 one\nx");
            drop(listener);
            assert_eq!(says(port, "x").await.unwrap_or_default(), "");
            std::fs::remove_file(sock).unwrap();
        }
    }
}
