//! How a connection to a guest is made.

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

/// Its name in the directory of a guest's socket.
const SOCKET: &str = "sock";

/// A listener whose queue is full takes the next connection in a moment.
const FULL: Duration = Duration::from_millis(10);

/// Makes connections to the guest of one container.
#[async_trait]
pub trait Dial: fmt::Debug + Send + Sync {
    /// Connects, without saying anything.
    ///
    /// # Errors
    /// [`Error::NotRunning`] and [`Error::NoSuchContainer`] where that is the reason; else [`Error::GuestFailed`].
    async fn dial(&self) -> Result<GuestStream>;

    /// What it means that something answered and did not say hello.
    async fn diagnose(&self, failure: Error) -> Error {
        failure
    }

    /// The engine's side of a guest that is locked until its container's mounts were compared. `None` for who cannot ask an
    /// engine: then the guest stays locked.
    fn mounts(&self) -> Option<&dyn Mounts> {
        None
    }
}

/// What the engine mounted into one container.
#[async_trait]
pub trait Mounts: Send + Sync {
    /// Each bind of the container, with the file that its source is, without following a link.
    ///
    /// # Errors
    /// [`Error::MountChanged`] where a link lies on the way to a source, or the source is gone.
    async fn expected(&self) -> Result<Vec<MountIdentity>>;

    /// Ends the container, at once: something else is mounted in it.
    async fn end_container(&self);
}

/// Tells whether the other end of a connection is still there.
pub type Liveness = Box<dyn Fn() -> bool + Send + Sync>;

/// A connection on which nothing was said.
pub struct GuestStream {
    /// What the guest says.
    pub reader: Box<dyn AsyncRead + Send + Unpin>,
    /// What is said to it.
    pub writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Of which kind it is.
    pub transport: Transport,
    /// Who is at its other end, where the kernel tells.
    pub peer: Option<ProcessId>,
    /// What a program in between complains of, known when it has ended.
    pub last_words: Option<JoinHandle<String>>,
    /// Whether its other end is still there, where the kernel tells without a word to it.
    pub there: Option<Liveness>,
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
    /// A connection without a peer, a program or anything to hold.
    pub fn plain(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        transport: Transport,
    ) -> Self {
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        Self { reader, writer, transport, peer: None, last_words: None, there: None, hold: Box::new(()) }
    }
}

/// What carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A unix socket that engine and host share.
    Socket,
    /// A program that the engine runs inside.
    Stream,
    /// The guest is part of this process.
    InProcess,
}

/// Where a guest's socket is, and who answers there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAt {
    /// The directory that the container sees as its link.
    pub dir: PathBuf,
    /// PID 1 of the container, as it was last seen.
    pub pid1: Option<ProcessId>,
}

impl SocketAt {
    /// Whether there is no socket in the directory.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dir.is_dir() && self.dir.join(SOCKET).symlink_metadata().is_err()
    }

    /// Whether the PID 1 that is known listens there.
    pub async fn is_answered(&self) -> bool {
        self.connect().await.is_some_and(|(_, peer)| self.pid1 == Some(peer))
    }

    /// Connects and looks who is there. `None` when nobody is, or the kernel does not tell who.
    ///
    /// The socket lies where code of the container can write: it may be a link to any socket of the host. So nothing may
    /// be said before the peer is known to be the container's PID 1.
    pub async fn connect(&self) -> Option<(UnixStream, ProcessId)> {
        let (_dir, path) = socket_path(&self.dir)?;
        let mut attempts = 0..20;
        let stream = loop {
            match UnixStream::connect(&path).await {
                Ok(stream) => break stream,
                Err(err) if err.kind() == std::io::ErrorKind::WouldBlock && attempts.next().is_some() => {
                    tokio::time::sleep(FULL).await;
                }
                Err(err) => {
                    tracing::debug!(dir = %self.dir.display(), %err, "no socket of a guest");
                    return None;
                }
            }
        };
        // Pid 0 is a process of a namespace that we cannot see into.
        let pid = stream.peer_cred().ok()?.pid().and_then(|it| u32::try_from(it).ok()).filter(|it| *it != 0)?;
        Some((stream, ProcessId::from_pid(pid)?))
    }
}

/// The socket in a directory, by the directory's descriptor: the path of a socket has no more than 107 bytes.
#[cfg(target_os = "linux")]
fn socket_path(dir: &Path) -> Option<(OwnedFd, PathBuf)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(dir, flags, Mode::empty()).ok()?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd());
    Some((dir, path.into()))
}

/// Elsewhere containers run in a virtual machine, which shares no socket with the host.
#[cfg(not(target_os = "linux"))]
fn socket_path(_: &Path) -> Option<(OwnedFd, PathBuf)> {
    None
}

/// A connection by a socket whose peer is known.
pub fn by_socket(stream: UnixStream, peer: ProcessId) -> GuestStream {
    let there = rustix::io::dup(&stream).ok().map(|it| Box::new(move || !hung_up(&it)) as Liveness);
    let (reader, writer) = stream.into_split();
    GuestStream { peer: Some(peer), there, ..GuestStream::plain(reader, writer, Transport::Socket) }
}

/// The peer has closed its end.
#[cfg(target_os = "linux")]
const CLOSED_BY_PEER: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const CLOSED_BY_PEER: PollFlags = PollFlags::HUP;

fn hung_up(socket: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(socket, CLOSED_BY_PEER)];
    let gone = CLOSED_BY_PEER | PollFlags::HUP | PollFlags::ERR;
    match rustix::event::poll(&mut asked, Some(&Timespec::default())) {
        Ok(_) => asked[0].revents().intersects(gone),
        Err(_) => true,
    }
}

/// Dials a socket and asks no engine.
#[derive(Debug)]
pub(crate) struct SocketDial(pub(crate) SocketAt);

#[async_trait]
impl Dial for SocketDial {
    async fn dial(&self) -> Result<GuestStream> {
        match self.0.connect().await {
            Some((stream, peer)) if self.0.pid1.as_ref() == Some(&peer) => Ok(by_socket(stream, peer)),
            Some(_) => Err(Error::GuestFailed { reason: "another process answers at its socket".into() }),
            None => Err(Error::GuestFailed { reason: "nobody answers at its socket".into() }),
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
        // Bound by a short name, as a guest does it: the directory's own path may be longer than a socket's can be.
        let held = std::fs::File::open(dir).unwrap();
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{SOCKET}", held.as_raw_fd())).unwrap();
        listener.set_nonblocking(true).unwrap();
        tokio::net::UnixListener::from_std(listener).unwrap()
    }

    fn at(dir: &Path, pid1: ProcessId) -> SocketAt {
        SocketAt { dir: dir.to_owned(), pid1: Some(pid1) }
    }

    #[tokio::test]
    async fn a_socket_of_the_expected_process_is_taken_however_long_its_path() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("d".repeat(200));
        std::fs::create_dir(&dir).unwrap();
        let listener = listen(&dir);
        let answers = tokio::spawn(async move {
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
        answers.await.unwrap();
    }

    #[tokio::test]
    async fn another_process_hears_not_a_byte() {
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
    async fn a_directory_that_is_a_link_and_a_missing_socket_are_none() {
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
