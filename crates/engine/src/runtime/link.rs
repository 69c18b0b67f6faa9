//! Connects to a container's guest over the socket in its link directory.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use coracle_client::{Dial, GuestStream, Link, LinkSettings, Mounts, SocketAt, by_socket};
use coracle_protocol::paths;
use coracle_runtime::{ContainerMounts, ContainerRuntime as _};
use coracle_types::{ContainerId, Error, ProcessId, Result};

use super::EmbeddedRuntime;
use crate::container::{find, has_process, state_to_enter};
use crate::engine::Engine;

pub(super) fn link(
    runtime: &EmbeddedRuntime,
    id: &ContainerId,
    socket: Option<SocketAt>,
    settings: LinkSettings,
) -> Link {
    let dial = SocketDial {
        mounts: ContainerMounts { runtime: runtime.clone(), id: id.clone() },
        socket: socket.map(Mutex::new),
        was_connected: AtomicBool::default(),
    };
    Link::new(Arc::new(dial), settings)
}

#[derive(Debug)]
struct SocketDial {
    /// The container, and its engine.
    mounts: ContainerMounts<EmbeddedRuntime>,
    /// Its PID 1 is updated after a restart of the container.
    socket: Option<Mutex<SocketAt>>,
    /// Whether a connection to the guest has succeeded before.
    was_connected: AtomicBool,
}

#[async_trait]
impl Dial for SocketDial {
    async fn dial(&self) -> Result<GuestStream> {
        let failed = |reason: &str| Error::GuestFailed { reason: reason.to_owned() };
        let Some(socket) = &self.socket else { return Err(failed("the container has no link directory")) };
        let at = socket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((stream, peer)) = at.connect().await else {
            return Err(self.unanswered(&at, failed("no process listens on its socket")).await);
        };
        // A known PID 1 may still be starting, but one that a link has connected to has started.
        let is_known = self.was_connected.load(Ordering::Relaxed) && at.pid1.as_ref() == Some(&peer);
        if !is_known {
            if !is_guest(self.mounts.runtime.engine(), &self.mounts.id, &peer).await? {
                return Err(self.unanswered(&at, failed("another process listens on its socket")).await);
            }
            socket.lock().unwrap_or_else(PoisonError::into_inner).pid1 = Some(peer.clone());
        }
        self.was_connected.store(true, Ordering::Relaxed);
        Ok(by_socket(stream, peer))
    }

    async fn diagnose(&self, failure: Error) -> Error {
        if let Some(err) = coracle_runtime::ended(&self.mounts.runtime, &self.mounts.id).await {
            return err;
        }
        let lost = self.socket.as_ref().is_some_and(|it| {
            let at = it.lock().unwrap_or_else(PoisonError::into_inner);
            at.pid1.is_some() && at.is_empty()
        });
        match failure {
            Error::GuestFailed { .. } if lost => socket_removed(),
            failure => failure,
        }
    }

    fn mounts(&self) -> Option<&dyn Mounts> {
        Some(&self.mounts)
    }
}

impl SocketDial {
    /// Explains a failed connection. After an earlier connection, it makes a full diagnosis. Before the first one, callers
    /// retry often while a guest starts, so it only inspects the container.
    async fn unanswered(&self, at: &SocketAt, failure: Error) -> Error {
        if self.was_connected.load(Ordering::Relaxed) {
            return self.diagnose(failure).await;
        }
        match self.mounts.runtime.inspect(&(&self.mounts.id).into()).await {
            Err(err @ Error::NoSuchContainer(_)) => err,
            Ok(it) if !it.running() => it.not_running(),
            Ok(it) if at.is_empty() && it.pid.is_some_and(listens) => socket_removed(),
            _ => failure,
        }
    }
}

fn socket_removed() -> Error {
    Error::FilesRemoved { missing: "the socket of the guest was removed".into() }
}

/// Whether a process listens on a unix socket, even if the socket file was removed. A guest that is starting does not yet.
fn listens(pid: u32) -> bool {
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let listeners: Vec<_> = table.lines().filter_map(Listener::parse).collect();
    // Without root, descriptors of a process with other ids are not readable.
    let Ok(opened) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        let sock = Path::new(paths::LINK).join(paths::SOCKET);
        return listeners.iter().any(|it| Some(sock.as_os_str()) == it.path.map(OsStr::new));
    };
    let mut targets = opened.flatten().filter_map(|it| std::fs::read_link(it.path()).ok());
    targets.any(|it| listeners.iter().any(|listener| it.as_os_str() == &*format!("socket:[{}]", listener.inode)))
}

/// A listening unix socket in `/proc/PID/net/unix`.
struct Listener<'a> {
    inode: &'a str,
    path: Option<&'a str>,
}

impl<'a> Listener<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        const LISTENING: &str = "00010000";
        // Number, references, protocol, flags, type, state, inode, path.
        let mut fields = line.split_whitespace().skip(3);
        let (flags, inode) = (fields.next()?, fields.nth(2)?);
        (flags == LISTENING).then(|| Self { inode, path: fields.next() })
    }
}

/// Whether a peer is the container's PID 1. If the container has its own kernel, the peer is the runtime's process that
/// creates its sockets, so the guest cannot be distinguished from another process inside that may write to the link's
/// directory. Waits for a start in progress, and ends a container whose start was interrupted, since it may have no
/// network.
async fn is_guest(engine: &Arc<Engine>, id: &ContainerId, peer: &ProcessId) -> Result<bool> {
    let container = find(engine, &id.into())?;
    let state = state_to_enter(engine, &container, "link").await?;
    match container.config.runtime.filter(|it| it.has_own_kernel()) {
        Some(_) => has_process(&container, peer.pid),
        None => Ok(state.process() == Some(peer)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Listener, listens};

    #[test]
    fn a_listener_is_found_after_its_socket_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::process::id();
        assert!(!listens(own));
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("sock")).unwrap();
        std::fs::remove_file(dir.path().join("sock")).unwrap();
        assert!(listens(own));
        drop(listener);
        assert!(!listens(own));
    }

    #[test]
    fn a_listener_is_distinguished_from_a_connection_in_the_kernels_table() {
        let listener = Listener::parse("6f69: 00000002 00000000 00010000 0001 01 4225504 /.coracle/link/sock").unwrap();
        assert_eq!((listener.inode, listener.path), ("4225504", Some("/.coracle/link/sock")));
        assert!(Listener::parse("6f69: 00000003 00000000 00000000 0001 03 4225505 /.coracle/link/sock").is_none());
        assert!(Listener::parse("Num       RefCount Protocol Flags    Type St Inode Path").is_none());
    }
}
