//! Connects to a guest.

use std::any::Any;
use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use coracle_protocol::MountIdentity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use coracle_types::{Error, ProcessId, Result};

/// Name of the socket in its directory.
const SOCKET: &str = "sock";

/// Delay before connecting again to a listener whose queue is full.
const RETRY_DELAY: Duration = Duration::from_millis(10);

/// Connects to the guest of one container.
#[async_trait]
pub trait Dial: fmt::Debug + Send + Sync {
    /// Connects, without sending anything.
    ///
    /// # Errors
    /// [`Error::NotRunning`] and [`Error::NoSuchContainer`] if the container is the reason; else [`Error::GuestFailed`].
    async fn dial(&self) -> Result<GuestStream>;

    /// Explains the failure if a connection was accepted but no greeting arrived.
    async fn diagnose(&self, failure: Error) -> Error {
        failure
    }

    /// The engine's mounts, for a guest that is locked until they are compared. `None` without access to an engine: then the
    /// guest stays locked.
    fn mounts(&self) -> Option<&dyn Mounts> {
        None
    }
}

/// The mounts of one container according to the engine.
#[async_trait]
pub trait Mounts: Send + Sync {
    /// Each bind mount of the container, with the file of its source, without following a link.
    ///
    /// # Errors
    /// [`Error::MountChanged`] if the path of a source contains a link, or the source is missing.
    async fn expected(&self) -> Result<Vec<MountIdentity>>;

    /// Ends the container at once, because a wrong file is mounted in it.
    async fn end_container(&self);
}

/// Checks whether the other end of a connection is open.
pub type Liveness = Box<dyn Fn() -> bool + Send + Sync>;

/// A connection before the greeting.
pub struct GuestStream {
    /// Receives the guest's messages.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// Sends messages to the guest.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// The kind of the connection.
    pub transport: Transport,
    /// The process at the other end, if the kernel reports it.
    pub peer: Option<ProcessId>,
    /// Error output of the program that carries the connection, available when the program has exited.
    pub error_output: Option<JoinHandle<String>>,
    /// Checks whether the other end is open, if the kernel reports it.
    pub liveness: Option<Liveness>,
    /// Dropped with the connection.
    pub hold: Box<dyn Any + Send>,
}

impl fmt::Debug for GuestStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transport, peer, .. } = self;
        f.debug_struct("GuestStream").field("transport", transport).field("peer", peer).finish_non_exhaustive()
    }
}

impl GuestStream {
    /// A connection without a peer, a program or resources to hold.
    pub fn plain(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        transport: Transport,
    ) -> Self {
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        Self { reader, writer, transport, peer: None, error_output: None, liveness: None, hold: Box::new(()) }
    }
}

/// What carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A unix socket shared by engine and host.
    Socket,
    /// A program that the engine runs in the container.
    Stream,
    /// The guest is part of this process.
    InProcess,
}

/// The socket of a guest, and the process that must listen there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAt {
    /// The directory that is mounted in the container for the link.
    pub dir: PathBuf,
    /// PID 1 of the container, as it was last seen.
    pub pid1: Option<ProcessId>,
}

impl SocketAt {
    /// Whether there is not a socket in the directory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dir.is_dir() && self.dir.join(SOCKET).symlink_metadata().is_err()
    }

    /// Whether the expected PID 1 listens there.
    pub async fn is_answered(&self) -> bool {
        self.connect().await.is_some_and(|(_, peer)| self.pid1 == Some(peer))
    }

    /// Connects and identifies the peer. `None` if no process listens, or the kernel does not report the peer.
    ///
    /// Code in the container can write to the directory of the socket, so the socket may be a link to any socket of the host.
    /// Send nothing before the peer is known to be the container's PID 1.
    pub async fn connect(&self) -> Option<(UnixStream, ProcessId)> {
        let (_dir, path) = socket_path(&self.dir)?;
        let mut attempts = 0..20;
        let stream = loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => break stream,
                Err(err) if err.kind() == std::io::ErrorKind::WouldBlock && attempts.next().is_some() => {
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(err) => {
                    tracing::debug!(dir = %self.dir.display(), %err, "no socket of a guest");
                    return None;
                }
            }
        };
        // Pid 0 is a process in a namespace that this process cannot see.
        let pid = stream.peer_cred().ok()?.pid().and_then(|it| u32::try_from(it).ok()).filter(|it| *it != 0)?;
        Some((stream, ProcessId::from_pid(pid)?))
    }
}

/// The socket by its directory's descriptor, because the path of a socket is limited to 107 bytes.
#[cfg(target_os = "linux")]
fn socket_path(dir: &Path) -> Option<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty()).ok()?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
    Some((dir, path.into()))
}

/// On other systems containers run in a virtual machine, which shares no socket with the host.
#[cfg(not(target_os = "linux"))]
fn socket_path(_: &Path) -> Option<(OwnedFd, PathBuf)> {
    None
}

/// A connection on a socket whose peer is known.
pub fn by_socket(stream: UnixStream, peer: ProcessId) -> GuestStream {
    let liveness = rustix::io::dup(&stream).ok().map(|it| Box::new(move || !hung_up(&it)) as Liveness);
    let (reader, writer) = stream.into_split();
    GuestStream { peer: Some(peer), liveness, ..GuestStream::plain(reader, writer, Transport::Socket) }
}

/// The peer has closed its end.
#[cfg(target_os = "linux")]
const CLOSED_BY_PEER: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const CLOSED_BY_PEER: PollFlags = PollFlags::HUP;

fn hung_up(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, CLOSED_BY_PEER)];
    let gone = CLOSED_BY_PEER | PollFlags::HUP | PollFlags::ERR;
    match rustix::event::poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) => fds[0].revents().intersects(gone),
        Err(_) => true,
    }
}

/// Connects to a socket without an engine.
#[derive(Debug)]
pub(crate) struct SocketDial(pub(crate) SocketAt);

#[async_trait]
impl Dial for SocketDial {
    async fn dial(&self) -> Result<GuestStream> {
        match self.0.connect().await {
            Some((stream, peer)) if self.0.pid1.as_ref() == Some(&peer) => Ok(by_socket(stream, peer)),
            Some(_) => Err(Error::GuestFailed { reason: "another process listens on its socket".into() }),
            None => Err(Error::GuestFailed { reason: "no process listens on its socket".into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use coracle_protocol::{FirstMessage, Hello};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::codec::{Frame, read};
    use crate::link::{Link, LinkSettings};

    fn listen(dir: &Path) -> tokio::net::UnixListener {
        // Bound through a descriptor, as in a guest: the path of the directory may be too long for a socket.
        let held = std::fs::File::open(dir).unwrap();
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd())).unwrap();
        listener.set_nonblocking(true).unwrap();
        tokio::net::UnixListener::from_std(listener).unwrap()
    }

    fn at(dir: &Path, pid1: ProcessId) -> SocketAt {
        SocketAt { dir: dir.to_owned(), pid1: Some(pid1) }
    }

    #[tokio::test]
    async fn a_socket_of_the_expected_process_is_accepted_with_any_length_of_its_path() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("d".repeat(200));
        std::fs::create_dir(&dir).unwrap();
        let listener = listen(&dir);
        let guest = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let Some(Frame { head: FirstMessage::Hello(hello), .. }) = read(&mut stream).await.unwrap() else {
                panic!()
            };
            let mut bytes = Vec::new();
            Frame::new(0, FirstMessage::Hello(Hello::of_guest(hello.nonce, "a run".into()))).write_to(&mut bytes);
            stream.write_all(&bytes).await.unwrap();
            stream.read_to_end(&mut bytes).await.unwrap();
        });
        let link = Link::by_socket(&at(&dir, ProcessId::current()), LinkSettings::default()).await.unwrap();
        assert_eq!((link.transport(), link.peer()), (Some(Transport::Socket), Some(ProcessId::current())));
        assert_eq!(link.run_id().await.unwrap(), "a run");
        drop(link);
        guest.await.unwrap();
    }

    #[tokio::test]
    async fn nothing_is_sent_to_another_process() {
        let temp = tempfile::tempdir().unwrap();
        let listener = listen(temp.path());
        let me = ProcessId::current();
        for other in [
            ProcessId { pid: 1, ..me.clone() },
            ProcessId { start: me.start + 1, ..me.clone() },
            ProcessId { boot: "another".into(), ..me.clone() },
        ] {
            assert!(Link::by_socket(&at(temp.path(), other), LinkSettings::default()).await.is_none());
            let (mut stream, _) = listener.accept().await.unwrap();
            assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0);
        }
    }

    #[tokio::test]
    async fn a_link_to_the_directory_and_a_missing_socket_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let (real, link) = (temp.path().join("real"), temp.path().join("link"));
        std::fs::create_dir(&real).unwrap();
        assert!(at(&real, ProcessId::current()).connect().await.is_none());
        let _listener = listen(&real);
        assert!(at(&real, ProcessId::current()).connect().await.is_some());
        std::os::unix::fs::symlink(&real, &link).unwrap();
        assert!(at(&link, ProcessId::current()).connect().await.is_none());
    }
}
