//! Serves a login shell the environment that a command of its user would have.
//!
//! **Invariant:** PID 1 reads nothing from this socket. It sends an environment once, and closes.
//! **Invariant:** the session's variables go to root and to the session's user only, by the peer credentials of the
//! kernel. Other users get the values of image and passwd file, which are not secret.

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

/// The environment may exceed the socket's buffer: a client that does not read is dropped after this time.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends each client the environment that a command of its user would have.
pub(crate) async fn serve(listener: UnixListener, container: Arc<Container>, supervisor: Arc<Supervisor>) {
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, for one: there may be some in a moment.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let Some(said) = encoded_environment(&stream, &container, &supervisor) else { continue };
        tokio::spawn(async move {
            let _place = place;
            let _ = timeout(WRITE_TIMEOUT, send(stream, &said)).await;
        });
    }
}

async fn send(mut stream: UnixStream, said: &[u8]) -> io::Result<()> {
    stream.write_all(said).await?;
    stream.shutdown().await
}

/// Bytes that follow, as four bytes, then `NAME=value`, each ended by a NUL.
fn encoded_environment(stream: &UnixStream, container: &Container, supervisor: &Supervisor) -> Option<Vec<u8>> {
    if supervisor.is_locked() {
        return None;
    }
    let peer = stream.peer_cred().ok()?;
    let session = supervisor.session.seen_by(peer.uid());
    let who = UserSpec::Ids { uid: peer.uid(), gid: Some(peer.gid()) };
    let environment = container.environment_of(&who, &session).ok()?;
    let variables = environment.iter().flat_map(|it| it.iter().copied().chain([0])).collect::<Vec<u8>>();
    let mut said = u32::try_from(variables.len()).ok()?.to_be_bytes().to_vec();
    said.extend(variables);
    Some(said)
}
