//! Listens for one container: at sockets that are mounted in it, or at an address on its private network.

use std::fs::Permissions;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::private_subnet::PrivateSubnet;
use crate::proxy::{Port, Proxy};

/// The names of the sockets, which the guest expects.
const SOCKETS: [(&str, Port); 2] = [("api.sock", Port::Api), ("egress.sock", Port::Egress)];

/// Pause between attempts to accept when no file descriptors are left.
const PAUSE: Duration = Duration::from_millis(50);

/// A listening proxy. Dropping it closes the listeners and every connection.
#[derive(Debug)]
pub struct ProxyListener {
    sockets: Vec<PathBuf>,
    /// Held here and not by the tasks, so that the ports are free as soon as this is dropped: the next process uses
    /// them.
    _ports: Vec<Arc<TcpListener>>,
    _stop: DropGuard,
}

impl ProxyListener {
    /// Listens at `api.sock` and `egress.sock` in a directory that only the container and this user can open (0700).
    /// Replaces sockets of an earlier process.
    ///
    /// # Errors
    /// If the directory is open to others, or a socket cannot be created. Outside Linux, its path may be too long.
    pub fn open(proxy: &Proxy, dir: &Path) -> io::Result<Self> {
        if std::fs::metadata(dir)?.permissions().mode() & 0o077 != 0 {
            return Err(io::Error::other("the directory of the proxy's sockets is open to others"));
        }
        let stop = CancellationToken::new();
        let (mut sockets, mut listeners) = (Vec::new(), Vec::new());
        for (name, port) in SOCKETS {
            let path = dir.join(name);
            match std::fs::remove_file(&path) {
                Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
                _ => {}
            }
            let listener = bind_in(dir, name)?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            sockets.push(path);
            listeners.push((listener, port));
        }
        for (listener, port) in listeners {
            let (proxy, stop) = (proxy.clone(), stop.clone());
            let next = async move || listener.accept().await.map(|it| it.0);
            tokio::spawn(async move { stop.run_until_cancelled(accept(proxy, port, next)).await });
        }
        Ok(Self { sockets, _ports: Vec::new(), _stop: stop.drop_guard() })
    }

    /// Listens at the host's address on a network: at one port for models and repositories, at another for host names
    /// outside. Uses the given ports if they are free, else others, and returns both addresses. Closes connections of
    /// any peer except the network's container, so that no other peer can make the proxy close by trying tokens.
    ///
    /// # Errors
    /// If the address does not belong to the host, or is the unspecified address.
    pub fn listen_at(
        proxy: &Proxy,
        between: PrivateSubnet,
        ports: Option<[u16; 2]>,
    ) -> io::Result<(Self, [SocketAddr; 2])> {
        let ip = between.gateway;
        if ip.is_unspecified() {
            return Err(io::Error::other("a proxy listens for one container, and not at every address"));
        }
        let bound = |port: u16| -> io::Result<TcpListener> {
            let listener = std::net::TcpListener::bind((ip, port))?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        let [api, egress] = ports.unwrap_or_default();
        let both = |api, egress| Ok::<_, io::Error>([bound(api)?, bound(egress)?]);
        let listeners = match both(api, egress) {
            Err(err) if err.kind() == io::ErrorKind::AddrInUse && ports.is_some() => both(0, 0),
            listeners => listeners,
        }?;
        let at = [listeners[0].local_addr()?, listeners[1].local_addr()?];
        let stop = CancellationToken::new();
        let listeners = listeners.map(Arc::new);
        for (listener, port) in listeners.iter().zip([Port::Api, Port::Egress]) {
            let (proxy, stop, listener) = (proxy.clone(), stop.clone(), Arc::downgrade(listener));
            let next = async move || loop {
                let (stream, peer) = accepted(&listener).await?;
                if between.is_container(peer.ip()) {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
            };
            tokio::spawn(async move { stop.run_until_cancelled(accept(proxy, port, next)).await });
        }
        Ok((Self { sockets: Vec::new(), _ports: Vec::from(listeners), _stop: stop.drop_guard() }, at))
    }
}

/// Binds a socket in a directory with a path of any length. A socket's address has room for only 107 bytes, so on Linux
/// it names the directory through its descriptor.
fn bind_in(dir: &Path, name: &str) -> io::Result<UnixListener> {
    if !cfg!(target_os = "linux") {
        return UnixListener::bind(dir.join(name));
    }
    let dir = std::fs::File::open(dir)?;
    UnixListener::bind(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// Accepts the next connection. Holds no reference to the listener while it waits, so that the port can be freed.
async fn accepted(listener: &Weak<TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    poll_fn(|cx| match listener.upgrade() {
        Some(listener) => listener.poll_accept(cx),
        None => Poll::Pending,
    })
    .await
}

impl Drop for ProxyListener {
    fn drop(&mut self) {
        for path in &self.sockets {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Serves connections until the future is dropped. That drops the set, which aborts the tasks of connections.
async fn accept<S>(proxy: Proxy, port: Port, next: impl AsyncFn() -> io::Result<S>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut served = JoinSet::new();
    loop {
        while served.try_join_next().is_some() {}
        match next().await {
            // Closes the connection without an answer, so that a client that tries tokens learns nothing.
            Ok(_) if proxy.0.abuse.is_closed() => {}
            Ok(stream) => {
                let proxy = proxy.clone();
                served.spawn(async move { proxy.serve(port, stream).await });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use coracle_types::ProfileName;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpSocket;

    use super::*;
    use crate::policy::{Grants, Tokens};
    use crate::settings::ProxySettings;

    /// Returns the answer to a bad token from that address.
    async fn answer_to_bad_token(from: [u8; 4], at: SocketAddr) -> String {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let Ok(mut stream) = socket.connect(at).await else { return String::new() };
        let _ = stream.write_all(b"CORACLE/1 guess\nGET /proxy/v1/health HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut received = Vec::new();
        let _ = stream.read_to_end(&mut received).await;
        String::from_utf8(received).unwrap()
    }

    #[tokio::test]
    async fn only_the_networks_container_can_close_its_proxy() {
        let proxy = Proxy::new(ProxySettings::new("k")).unwrap();
        proxy.grant(Some(Grants::new(ProfileName::parse("default").unwrap(), Tokens::default())));
        let between = PrivateSubnet { gateway: [127, 0, 0, 1].into(), subnet: "127.0.0.0/30".parse().unwrap() };
        let (_listening, [at, _]) = ProxyListener::listen_at(&proxy, between, None).unwrap();
        for _ in 0..25 {
            // A program on this host, and a container on another network.
            for stranger in [[127, 0, 0, 1], [127, 0, 0, 9]] {
                assert_eq!(answer_to_bad_token(stranger, at).await, "");
            }
        }
        assert!(!proxy.0.abuse.is_closed());
        assert!(
            answer_to_bad_token([127, 0, 0, 2], at).await.contains("token_invalid"),
            "the container gets an answer"
        );
    }
}
