//! The worker's connection: a socket that only its user can open, with access to the agent's files and commands.
//!
//! **Invariant:** every request on this socket runs as the agent, beneath the root; it can access only jobs that were
//! started on this socket, and none of the host's.

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

/// Path of the socket, below the root directory.
const SOCKET: &str = ".coracle/run/worker.sock";

/// Limit of connections: a worker needs one, and a second one while it reconnects.
const MAX_CONNECTIONS: usize = 8;

impl UnaryHandler for OpenWorkerSocket {
    const IS_FINISHED: bool = true;

    async fn execute(self, cx: &CallContext, _: &ReplySender) -> Result<UnaryReply<()>, RpcError> {
        open(&cx.supervisor, self).map(UnaryReply::Reply)
    }
}

/// Grants access to a worker. Repeating the same request changes nothing; a different one is refused.
fn open(supervisor: &Arc<Supervisor>, request: OpenWorkerSocket) -> Result<(), RpcError> {
    check(&request)?;
    let mut grant = supervisor.worker_grant.lock().unwrap_or_else(PoisonError::into_inner);
    match &*grant {
        Some(existing) if *existing == request => return Ok(()),
        Some(_) => return Err(RpcError::new(ErrorCode::Exists, "another worker already has access")),
        None => {}
    }
    let users = [("worker", request.worker, "/nonexistent", false), ("agent", request.agent, "/home/agent", true)];
    for (name, (uid, gid), home, login) in users {
        supervisor.machine.add_user(NewUser { name, uid, gid, home, login })?;
    }
    let listener = listen(&supervisor.machine.root().join(SOCKET), request.worker)
        .map_err(|err| RpcError::new(ErrorCode::Io, format!("the worker's socket cannot be created: {err}")))?;
    tokio::spawn(accept(listener, Arc::new(request.clone()), supervisor.clone()));
    *grant = Some(request);
    Ok(())
}

fn check(request: &OpenWorkerSocket) -> Result<(), RpcError> {
    let numbers = [request.worker.0, request.worker.1, request.agent.0, request.agent.1];
    if numbers.contains(&u32::MAX) || numbers.contains(&0) {
        return Err(RpcError::new(ErrorCode::Invalid, "worker and agent need valid ids other than root's"));
    }
    if !request.has_valid_root() {
        return Err(RpcError::new(ErrorCode::Invalid, "the root must be an absolute path without `..`"));
    }
    Ok(())
}

/// Creates a socket for that user alone. The owner is set last: the guest cannot change the mode of another user's file.
fn listen(at: &Path, (uid, gid): (u32, u32)) -> io::Result<UnixListener> {
    let dir = at.parent().unwrap_or(Path::new("/"));
    // In a container it exists, but not in tests.
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    match std::fs::remove_file(at) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
        _ => {}
    }
    let listener = UnixListener::bind(at)?;
    std::fs::set_permissions(at, Permissions::from_mode(0o600))?;
    match lchown(at, Some(uid), Some(gid)) {
        // A guest without privileges is that user already.
        Err(err) if rustix::process::geteuid().is_root() => Err(err),
        _ => Ok(listener),
    }
}

async fn accept(listener: UnixListener, grant: Arc<OpenWorkerSocket>, supervisor: Arc<Supervisor>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_worker(&stream, &grant) => {
                // The connection is closed at once if there are too many.
                let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
                let (supervisor, caller) = (supervisor.clone(), Caller::Worker(grant.clone()));
                tokio::spawn(async move {
                    let _permit = permit;
                    serve_socket(supervisor, stream, caller).await
                });
            }
            Ok(_) => {}
            // For example, no free descriptor: other connections are served in the meantime.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// The permission bits allow the same, but root inside can bypass them.
fn is_worker(stream: &UnixStream, grant: &OpenWorkerSocket) -> bool {
    let own = rustix::process::geteuid();
    // A guest that is not root has one user for all processes, and so have tests.
    stream.peer_cred().is_ok_and(|peer| peer.uid() == grant.worker.0 || !own.is_root() && peer.uid() == own.as_raw())
}

#[cfg(test)]
mod tests;
