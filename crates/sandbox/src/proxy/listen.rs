//! The sockets of one container.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Port, Proxy};

/// Their names, as the container's guest knows them.
const SOCKETS: [(&str, Port); 2] = [("api.sock", Port::Api), ("egress.sock", Port::Egress)];

/// Between two tries to accept when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A proxy that listens. When it is dropped nobody listens any more, and every connection is closed.
#[derive(Debug)]
pub struct Listening {
    sockets: Vec<PathBuf>,
    _stop: DropGuard,
}

impl Listening {
    /// Listens at `api.sock` and `egress.sock` in a directory that is the container's and this user's alone (0700). Sockets
    /// that are left there from before are replaced.
    ///
    /// # Errors
    /// When no socket can be made there: its path may be too long, or the directory open to others.
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
            let listener = UnixListener::bind(&path)?;
            std::fs::set_permissions(&path, Permissions::from_mode(0o600))?;
            sockets.push(path);
            listeners.push((listener, port));
        }
        for (listener, port) in listeners {
            let (proxy, stop) = (proxy.clone(), stop.clone());
            tokio::spawn(async move { stop.run_until_cancelled(accept(proxy, port, listener)).await });
        }
        Ok(Self { sockets, _stop: stop.drop_guard() })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        for path in &self.sockets {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Connections end with it: the set aborts what is in it.
async fn accept(proxy: Proxy, port: Port, listener: UnixListener) {
    let mut served = JoinSet::new();
    loop {
        while served.try_join_next().is_some() {}
        match listener.accept().await {
            // Closed at once: who tries tokens learns nothing more.
            Ok(_) if proxy.0.abuse.is_closed() => {}
            Ok((stream, _)) => {
                let proxy = proxy.clone();
                served.spawn(async move { proxy.serve(port, stream).await });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
