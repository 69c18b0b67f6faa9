//! Sends a login shell the environment that a command of its user would have.
//!
//! **Invariant:** PID 1 reads nothing from this socket. It sends an environment once, then closes the connection.
//! **Invariant:** the session's variables go to root and to the session's user only, by the peer credentials of the
//! kernel. Other users get the values of the image and the passwd file, which are not secret.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::os::container::Container;
use crate::protocol::UserSpec;
use crate::server::services::Supervisor;

/// Concurrent clients; others are rejected.
const MAX_CLIENTS: usize = 16;

/// The environment may exceed the socket's buffer: a client that does not read is disconnected after this time.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) async fn serve(listener: UnixListener, container: Arc<Container>, supervisor: Arc<Supervisor>) {
    let permits = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // For example, no free descriptor: one may become free in a moment.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
        let Some(encoded) = encoded_environment(&stream, &container, &supervisor) else { continue };
        tokio::spawn(async move {
            let _permit = permit;
            let _ = timeout(WRITE_TIMEOUT, send(stream, &encoded)).await;
        });
    }
}

async fn send(mut stream: UnixStream, encoded: &[u8]) -> io::Result<()> {
    stream.write_all(encoded).await?;
    stream.shutdown().await
}

/// The length of what follows in four bytes, then `NAME=value` each, with a NUL after it.
fn encoded_environment(stream: &UnixStream, container: &Container, supervisor: &Supervisor) -> Option<Vec<u8>> {
    if supervisor.is_locked() {
        return None;
    }
    let peer = stream.peer_cred().ok()?;
    let session = supervisor.session.seen_by(peer.uid());
    let user = UserSpec::Ids { uid: peer.uid(), gid: Some(peer.gid()) };
    let environment = container.environment_of(&user, &session).ok()?;
    let variables = environment.iter().flat_map(|it| it.iter().copied().chain([0])).collect::<Vec<u8>>();
    let mut encoded = u32::try_from(variables.len()).ok()?.to_be_bytes().to_vec();
    encoded.extend(variables);
    Some(encoded)
}
