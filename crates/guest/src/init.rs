//! PID 1 of a container: listens, reaps, and exits when it is asked to.

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

use self::idle_timeout::{Present, left_alone};
use crate::os::container::Container;
use crate::protocol::paths::{DIR, LINK, RUN, SHELL_SOCKET, SOCKET};
use crate::server::connection::serve_socket;
use crate::server::dispatch::Caller;
use crate::server::services::Supervisor;

/// Connections from inside at once.
const MAX_INSIDE: usize = 16;

/// Between TERM and KILL, when the container is stopped.
const GRACE: Duration = Duration::from_secs(2);

/// Who may connect to a socket.
#[derive(Clone, Copy, Debug)]
enum PeerPolicy {
    /// Processes that cannot be seen from inside.
    Host,
    /// PID 1's own user, which `connect` runs as. Where commands are that user, too, only what the engine started.
    Own,
}

/// The reason for the exit of PID 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// A signal or the host ended it.
    Told,
    /// No connection for the length of the idle timeout.
    Alone,
}

/// Runs PID 1 until it is asked to end, or until there was no connection and no running command for the idle timeout
/// `lifeline`. The environment, `NAME=value` each, is that of the image.
///
/// # Errors
/// When it cannot listen anywhere.
pub async fn init(environment: Vec<Vec<u8>>, lifeline: Option<Duration>) -> io::Result<ExitReason> {
    // Keeps processes inside from reading our memory or attaching a debugger.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    peer_origin::watch()?;
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (container, reaper) = Container::new("/", environment)?;
    tokio::spawn(reaper.run());
    let container = Arc::new(container);
    // What is too much for memory goes to this directory's file system, which is the container's own.
    let supervisor = Supervisor::new(container.clone(), Path::new(DIR));
    supervisor.lock();
    let linked = listen_for_host(&Path::new(LINK).join(SOCKET)).map(|it| (it, PeerPolicy::Host));
    let inside = listen(&Path::new(RUN).join(SOCKET), 0o600).map(|it| (it, PeerPolicy::Own));
    let listeners: Vec<_> = [linked, inside].into_iter().filter_map(Result::ok).collect();
    if listeners.is_empty() {
        return Err(io::Error::other("no socket can be made, in /.coracle/link or /.coracle/run"));
    }
    if let Ok(listener) = listen(&Path::new(RUN).join(SHELL_SOCKET), 0o666) {
        tokio::spawn(shell_socket::serve(listener, container, supervisor.clone()));
    }
    let present = Present::default();
    for (listener, callers) in listeners {
        tokio::spawn(accept(listener, callers, (supervisor.clone(), present.clone())));
    }
    let alone = async {
        match lifeline {
            Some(lifeline) => left_alone(&supervisor, &present, lifeline).await,
            None => std::future::pending().await,
        }
    };
    let told = async {
        loop {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            // Of processes inside, only root may end it.
            if rustix::process::geteuid().is_root() || peer_origin::is_signalled() {
                return;
            }
        }
    };
    let left = tokio::select! {
        () = told => ExitReason::Told,
        () = alone => ExitReason::Alone,
    };
    supervisor.end_all(GRACE).await;
    Ok(left)
}

/// A socket that belongs to the owner of its directory, with these permission bits. One of an earlier run is replaced.
fn listen(sock: &Path, mode: u32) -> io::Result<UnixListener> {
    let listener = listen_alone(sock)?;
    // Its owner comes last: who gave it away may not change its bits.
    std::fs::set_permissions(sock, Permissions::from_mode(mode))?;
    give_to_owner_of_directory(sock)?;
    Ok(listener)
}

/// A socket in the directory of the link, for the owner of the directory. A guest that may not change its owner (on an engine
/// without root) opens it to every user instead: the host closes the directory as soon as the guest accepts
/// connections, and those of processes inside are refused.
fn listen_for_host(sock: &Path) -> io::Result<UnixListener> {
    let listener = listen_alone(sock)?;
    match give_to_owner_of_directory(sock) {
        Err(err) if err.kind() == io::ErrorKind::PermissionDenied && !rustix::process::geteuid().is_root() => {
            std::fs::set_permissions(sock, Permissions::from_mode(0o666))?;
        }
        given => given?,
    }
    Ok(listener)
}

/// A socket of our own alone.
fn listen_alone(sock: &Path) -> io::Result<UnixListener> {
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

async fn accept(listener: UnixListener, callers: PeerPolicy, (supervisor, present): (Arc<Supervisor>, Present)) {
    let places = Arc::new(Semaphore::new(match callers {
        PeerPolicy::Host => Semaphore::MAX_PERMITS,
        PeerPolicy::Own => MAX_INSIDE,
    }));
    loop {
        match listener.accept().await {
            Ok((stream, _)) if may_call(&stream, callers) => {
                // Closed at once when there are too many.
                let Ok(place) = places.clone().try_acquire_owned() else { continue };
                let (supervisor, here) = (supervisor.clone(), present.one_more());
                let caller = if matches!(callers, PeerPolicy::Host) { Caller::Host } else { Caller::Root };
                tokio::spawn(async move {
                    let (_place, _here) = (place, here);
                    serve_socket(supervisor, stream, caller).await
                });
            }
            Ok(_) => {}
            // Out of descriptors, for one: other connections are served in the meantime.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The kernel gives 0 for a process that is not of this container.
fn may_call(stream: &UnixStream, callers: PeerPolicy) -> bool {
    let Ok(peer) = stream.peer_cred() else { return false };
    match callers {
        PeerPolicy::Host => peer.pid().is_none_or(|pid| pid == 0),
        PeerPolicy::Own => {
            let own = rustix::process::geteuid();
            peer.uid() == own.as_raw() && (own.is_root() || peer.pid().is_some_and(peer_origin::is_the_engines))
        }
    }
}
