//! PID 1 of a container: listens, reaps, and exits on a signal or a request of the host.

mod idle_timeout;
mod peer_origin;
mod shell_socket;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

use self::idle_timeout::{ConnectionCount, wait_until_idle};
use crate::os::container::Container;
use crate::protocol::paths::{DIR, LINK, RUN, SHELL_SOCKET, SOCKET};
use crate::server::connection::serve_socket;
use crate::server::dispatch::Caller;
use crate::server::services::Supervisor;

/// Concurrent connections from inside.
const MAX_INSIDE: usize = 16;

/// Between TERM and KILL, when the container stops.
const GRACE: Duration = Duration::from_secs(2);

/// Who may connect to a socket.
#[derive(Clone, Copy, Debug)]
enum PeerPolicy {
    /// Processes outside the container's PID namespace.
    Host,
    /// PID 1's own user, as which `connect` runs. If commands run as that user, too, only processes that the engine started.
    Own,
}

/// The reason for the exit of PID 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// A signal or the host stopped it.
    Stopped,
    /// There was no connection for the length of the idle timeout.
    Idle,
}

/// Runs PID 1 until a signal stops it, or until there was no connection and no running command for the idle timeout
/// `lifeline`. The environment, `NAME=value` each, is that of the image.
///
/// # Errors
/// Fails if it can listen on no socket.
pub async fn init(environment: Vec<Vec<u8>>, lifeline: Option<Duration>) -> io::Result<ExitReason> {
    // Keeps processes inside from reading our memory or attaching a debugger.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    peer_origin::watch()?;
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (container, reaper) = Container::new("/", environment)?;
    tokio::spawn(reaper.run());
    let container = Arc::new(container);
    // Output beyond the memory limit is spilled to this directory, which is on the container's own file system.
    let supervisor = Supervisor::new(container.clone(), Path::new(DIR));
    supervisor.lock();
    let linked = listen_for_host(&Path::new(LINK).join(SOCKET)).map(|it| (it, PeerPolicy::Host));
    let inside = listen(&Path::new(RUN).join(SOCKET), 0o600).map(|it| (it, PeerPolicy::Own));
    let listeners: Vec<_> = [linked, inside].into_iter().filter_map(Result::ok).collect();
    if listeners.is_empty() {
        return Err(io::Error::other("cannot create a socket in /.coracle/link or /.coracle/run"));
    }
    if let Ok(listener) = listen(&Path::new(RUN).join(SHELL_SOCKET), 0o666) {
        tokio::spawn(shell_socket::serve(listener, container, supervisor.clone()));
    }
    let connections = ConnectionCount::default();
    for (listener, callers) in listeners {
        tokio::spawn(accept(listener, callers, supervisor.clone(), connections.clone()));
    }
    let idle = async {
        match lifeline {
            Some(lifeline) => wait_until_idle(&supervisor, &connections, lifeline).await,
            None => std::future::pending().await,
        }
    };
    let stopped = async {
        loop {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            // Of the processes inside, only root may stop PID 1.
            if rustix::process::geteuid().is_root() || peer_origin::is_signalled() {
                return;
            }
        }
    };
    let reason = tokio::select! {
        () = stopped => ExitReason::Stopped,
        () = idle => ExitReason::Idle,
    };
    supervisor.end_all(GRACE).await;
    Ok(reason)
}

/// Creates a socket with these permission bits that belongs to the owner of its directory. Replaces one of an earlier
/// run.
fn listen(sock: &Path, mode: u32) -> io::Result<UnixListener> {
    let listener = listen_private(sock)?;
    // The owner is set last: a process that gave the file away may not change its bits.
    std::fs::set_permissions(sock, Permissions::from_mode(mode))?;
    give_to_owner_of_directory(sock)?;
    Ok(listener)
}

/// Creates a socket in the directory of the link, for the owner of the directory. A guest that may not change the owner (on
/// an engine without root) opens the socket to every user instead: the host closes the directory as soon as the guest
/// accepts connections, and `may_call` rejects connections of processes inside.
fn listen_for_host(sock: &Path) -> io::Result<UnixListener> {
    let listener = listen_private(sock)?;
    match give_to_owner_of_directory(sock) {
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() => {
            std::fs::set_permissions(sock, Permissions::from_mode(0o666))?;
        }
        given => given?,
    }
    Ok(listener)
}

/// Creates a socket that only this process's user may open.
fn listen_private(sock: &Path) -> io::Result<UnixListener> {
    match std::fs::remove_file(sock) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(sock);
    rustix::process::umask(before);
    listener
}

fn give_to_owner_of_directory(sock: &Path) -> io::Result<()> {
    let owner = std::fs::metadata(sock.parent().unwrap_or(Path::new("/")))?;
    std::os::unix::fs::lchown(sock, Some(owner.uid()), Some(owner.gid()))
}

async fn accept(
    listener: UnixListener,
    callers: PeerPolicy,
    supervisor: Arc<Supervisor>,
    connections: ConnectionCount,
) {
    let permits = Arc::new(Semaphore::new(match callers {
        PeerPolicy::Host => Semaphore::MAX_PERMITS,
        PeerPolicy::Own => MAX_INSIDE,
    }));
    loop {
        match listener.accept().await {
            Ok((stream, _)) if may_call(&stream, callers) => {
                // The connection is closed at once if there are too many.
                let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
                let (supervisor, guard) = (supervisor.clone(), connections.add());
                let caller = if matches!(callers, PeerPolicy::Host) { Caller::Host } else { Caller::Root };
                tokio::spawn(async move {
                    let (_permit, _guard) = (permit, guard);
                    serve_socket(supervisor, stream, caller).await
                });
            }
            Ok(_) => {}
            // For example, no free descriptor: other connections are served in the meantime.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The kernel reports pid 0 for a process outside the container.
fn may_call(stream: &UnixStream, callers: PeerPolicy) -> bool {
    let Ok(peer) = stream.peer_cred() else { return false };
    match callers {
        PeerPolicy::Host => peer.pid().is_none_or(|pid| pid == 0),
        PeerPolicy::Own => {
            let own = rustix::process::geteuid();
            peer.uid() == own.as_raw() && (own.is_root() || peer.pid().is_some_and(peer_origin::is_started_by_engine))
        }
    }
}
