//! Docker or Podman on another machine: their socket, forwarded by one `ssh` of the system.
//!
//! Coracle's own socket takes the place of the engine's. Programs and API clients use it. The first connection starts
//! `ssh`, and a later one starts it again if it has ended. So connecting to an engine needs no request to it, and many
//! commands need only one login.

mod destination;
mod session;

use std::os::unix::net::UnixListener as StdListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

pub use self::destination::SshDestination;
use self::session::SshSession;
use crate::settings::EngineSettings;
use coracle_types::{ConnectionFault, Error, Excerpt, Result};

/// Time until the next try after a connection was not accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What `ssh` needs of this machine.
#[derive(Clone, Debug)]
pub(super) struct SshSettings {
    pub(super) home: PathBuf,
    /// Its configuration; the user's own when missing.
    pub(super) config: Option<PathBuf>,
    /// The socket of the user's agent for keys.
    pub(super) agent: Option<PathBuf>,
}

/// Why there is no connection, and what `ssh` printed.
#[derive(Clone, Debug)]
pub struct ConnectionFailure {
    pub fault: ConnectionFault,
    pub excerpt: Excerpt,
}

impl ConnectionFailure {
    fn new(fault: ConnectionFault, reason: &str) -> Self {
        Self { fault, excerpt: Excerpt::from_bytes(reason.as_bytes()) }
    }
}

/// The socket that takes the place of a remote engine's. Its connections end when it is dropped.
#[derive(Debug)]
pub struct SshForward {
    state: Arc<ForwardState>,
    accepting: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct ForwardState {
    destination: SshDestination,
    settings: SshSettings,
    /// A private directory of Coracle's with both sockets.
    dir: tempfile::TempDir,
    session: tokio::sync::Mutex<Option<SshSession>>,
    /// Why the last connection failed; nothing after one that worked.
    failure: Mutex<Option<ConnectionFailure>>,
}

impl SshForward {
    /// Listens in a directory of its own. Connects to nothing yet.
    pub fn listen(destination: SshDestination, settings: &EngineSettings) -> Result<Self> {
        let listen = || {
            let dir = tempfile::Builder::new().prefix("coracle-ssh-").tempdir_in(&settings.temp_dir)?;
            let listener = StdListener::bind(dir.path().join("engine"))?;
            listener.set_nonblocking(true)?;
            let runtime = tokio::runtime::Handle::try_current().map_err(std::io::Error::other)?;
            let entered = runtime.enter();
            let listener = UnixListener::from_std(listener)?;
            drop(entered);
            Ok((dir, listener, runtime))
        };
        let (dir, listener, runtime) = listen().map_err(|source| Error::Host {
            what: format!("cannot listen in a directory of `{}`", settings.temp_dir.display()),
            source,
        })?;
        let ssh = SshSettings {
            home: settings.home.clone(),
            config: settings.ssh_config.clone(),
            agent: settings.ssh_agent.clone(),
        };
        let (session, failure) = Default::default();
        let state = Arc::new(ForwardState { destination, settings: ssh, dir, session, failure });
        let accepting = runtime.spawn(accept(listener, state.clone()));
        Ok(Self { state, accepting })
    }

    /// The socket here.
    pub fn socket(&self) -> PathBuf {
        self.state.dir.path().join("engine")
    }

    /// Why the last connection failed, if it did.
    pub fn failure(&self) -> Option<ConnectionFailure> {
        self.state.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for SshForward {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: UnixListener, state: Arc<ForwardState>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((near, _)) => {
                let state = state.clone();
                connections.spawn(async move { state.join(near).await });
            }
            Err(err) => {
                // No file descriptor is free, for example: those that wait are accepted later.
                tracing::debug!(%err, "a connection to an engine elsewhere was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {} // those that ended
    }
}

impl ForwardState {
    /// Joins a connection from here to one there, until both have ended. The reason for a failure is noted before the
    /// caller sees the end.
    async fn join(&self, mut near: UnixStream) {
        let mut far = match self.connect().await {
            Ok(far) => far,
            Err(failure) => return self.note(Some(failure)),
        };
        let ((mut near_reads, mut near_writes), (mut far_reads, mut far_writes)) = (near.split(), far.split());
        let there = async {
            let _ = tokio::io::copy(&mut near_reads, &mut far_writes).await;
            let _ = far_writes.shutdown().await; // an error of one direction is the end of the other
        };
        let back = async {
            let mut first = vec![0; 16 << 10];
            let count = far_reads.read(&mut first).await.unwrap_or(0);
            self.note(if count == 0 { self.refusal().await } else { None });
            if near_writes.write_all(&first[..count]).await.is_ok() {
                let _ = tokio::io::copy(&mut far_reads, &mut near_writes).await;
            }
            let _ = near_writes.shutdown().await;
        };
        tokio::join!(there, back);
    }

    fn note(&self, failure: Option<ConnectionFailure>) {
        if let Some(it) = &failure {
            tracing::info!("the engine at {:?} is not reached: {} ({})", self.destination, it.fault, it.excerpt);
        }
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    async fn connect(&self) -> Result<UnixStream, ConnectionFailure> {
        let mut session = self.session.lock().await;
        if let Some(running) = session.as_mut()
            && running.is_alive()
        {
            return running.connect().await;
        }
        *session = None; // ends the one before, whose socket has the same path
        let opened = SshSession::open(&self.destination, &self.settings, self.dir.path().join("forward")).await?;
        let connected = opened.connect().await;
        *session = Some(opened);
        connected
    }

    async fn refusal(&self) -> Option<ConnectionFailure> {
        let session = self.session.lock().await;
        session.as_ref().map(SshSession::refusal)
    }
}
