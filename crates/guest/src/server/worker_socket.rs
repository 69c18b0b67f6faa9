//! The way in for a worker: a socket that only its user can use, and that leads to another user's files and commands.
//!
//! **Invariant:** whoever comes this way acts as the agent, beneath the root, whatever it asks for; it sees no job but
//! those that were begun this way, and nothing of the host's.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, lchown};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::os::machine::NewUser;
use crate::protocol::{ErrorCode, OpenWorkerSocket, RpcError};
use crate::server::channel::ReplySender;
use crate::server::connection::serve_socket;
use crate::server::dispatch::{CallContext, Caller, UnaryHandler, UnaryReply};
use crate::server::services::Supervisor;

/// Where it is, below the root of the machine.
const SOCKET: &str = ".coracle/run/worker.sock";

/// Connections at once: a worker needs one, and another while it makes that anew.
const MOST: usize = 8;

impl UnaryHandler for OpenWorkerSocket {
    const IS_FINISHED: bool = true;

    async fn answer(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<()>, RpcError> {
        open(&cx.supervisor, self).map(UnaryReply::Reply)
    }
}

/// Lets a worker in. The same again changes nothing; another one is refused.
fn open(supervisor: &Arc<Supervisor>, ask: OpenWorkerSocket) -> Result<(), RpcError> {
    check(&ask)?;
    let mut door = supervisor.door.lock().unwrap_or_else(PoisonError::into_inner);
    match &*door {
        Some(there) if *there == ask => return Ok(()),
        Some(_) => return Err(RpcError::new(ErrorCode::Exists, "another worker was let in already")),
        None => {}
    }
    let users = [("worker", ask.worker, "/nonexistent", false), ("agent", ask.agent, "/home/agent", true)];
    for (name, (uid, gid), home, login) in users {
        supervisor.machine.add_user(NewUser { name, uid, gid, home, login })?;
    }
    let listener = listen(&supervisor.machine.root().join(SOCKET), ask.worker)
        .map_err(|err| RpcError::new(ErrorCode::Io, format!("the worker's socket cannot be made: {err}")))?;
    tokio::spawn(accept(listener, Arc::new(ask.clone()), supervisor.clone()));
    *door = Some(ask);
    Ok(())
}

fn check(ask: &OpenWorkerSocket) -> Result<(), RpcError> {
    let numbers = [ask.worker.0, ask.worker.1, ask.agent.0, ask.agent.1];
    if numbers.contains(&u32::MAX) || numbers.contains(&0) {
        return Err(RpcError::new(ErrorCode::Invalid, "neither a worker nor an agent is root or nobody"));
    }
    if !ask.has_valid_root() {
        return Err(RpcError::new(ErrorCode::Invalid, "the root is an absolute path without `..`"));
    }
    Ok(())
}

/// A socket of that user's alone. Its owner comes last: who gave it away may not change its bits.
fn listen(at: &Path, (uid, gid): (u32, u32)) -> io::Result<UnixListener> {
    let dir = at.parent().unwrap_or(Path::new("/"));
    // A container has it; what plays one may not.
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    match std::fs::remove_file(at) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let listener = UnixListener::bind(at)?;
    std::fs::set_permissions(at, Permissions::from_mode(0o600))?;
    match lchown(at, Some(uid), Some(gid)) {
        // A guest without privileges is that user, or plays it.
        Err(err) if rustix::process::geteuid().is_root() => Err(err),
        _ => Ok(listener),
    }
}

async fn accept(listener: UnixListener, given: Arc<OpenWorkerSocket>, supervisor: Arc<Supervisor>) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_worker(&stream, &given) => {
                // Closed at once when there are too many.
                let Ok(place) = places.clone().try_acquire_owned() else { continue };
                let (supervisor, caller) = (supervisor.clone(), Caller::Worker(given.clone()));
                tokio::spawn(async move {
                    let _place = place;
                    serve_socket(supervisor, stream, caller).await
                });
            }
            Ok(_) => {}
            // Out of descriptors, for one: others are served meanwhile.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The permission bits say the same; root inside gets past those.
fn is_worker(stream: &UnixStream, given: &OpenWorkerSocket) -> bool {
    let own = rustix::process::geteuid();
    // A guest that is not root has one user for all, and so has one that is played.
    stream.peer_cred().is_ok_and(|it| it.uid() == given.worker.0 || !own.is_root() && it.uid() == own.as_raw())
}

#[cfg(test)]
mod tests;
