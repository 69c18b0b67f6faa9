//! The way to the guest of a container: its socket, or a program that the engine runs inside.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use coracle_client::{Dial, GuestStream, Link, LinkSettings, Mounts, SocketAt, Transport, by_socket};
use coracle_host::process::{self, Stdin};
use coracle_protocol::SOCKET_GONE;
use coracle_runtime::{ContainerMounts, ended};
use coracle_types::{ContainerId, Error, Excerpt, ProcessId, Result};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr};

use super::RunsCommands;

/// Limit of error output that is read, in bytes; its end is reported.
const MAX_STDERR: usize = 64 << 10;

pub fn link<R: RunsCommands>(runtime: &R, id: &ContainerId, socket: Option<SocketAt>, settings: LinkSettings) -> Link {
    // A socket on another host is no socket here.
    let socket = socket.filter(|_| runtime.shares_sockets()).map(Mutex::new);
    let mounts = ContainerMounts { runtime: runtime.clone(), id: id.clone() };
    Link::new(Arc::new(EngineDial { mounts, socket }), settings)
}

#[derive(Debug)]
struct EngineDial<R> {
    /// The container, and its engine.
    mounts: ContainerMounts<R>,
    /// PID 1 is updated when the engine reports another one.
    socket: Option<Mutex<SocketAt>>,
}

#[async_trait]
impl<R: RunsCommands> Dial for EngineDial<R> {
    async fn dial(&self) -> Result<GuestStream> {
        match self.by_socket().await? {
            Some(dialled) => Ok(dialled),
            None => self.by_stream(),
        }
    }

    async fn diagnose(&self, failure: Error) -> Error {
        if let Some(err) = ended(&self.mounts.runtime, &self.mounts.id).await {
            return err;
        }
        match failure {
            Error::GuestFailed { reason } if self.lost_its_socket() || reason.contains(SOCKET_GONE) => {
                Error::FilesRemoved { missing: "the socket of the guest was removed".into() }
            }
            failure => failure,
        }
    }

    fn mounts(&self) -> Option<&dyn Mounts> {
        Some(&self.mounts)
    }
}

impl<R: RunsCommands> EngineDial<R> {
    /// `None` if the peer is not the container's PID 1 according to the engine.
    async fn by_socket(&self) -> Result<Option<GuestStream>> {
        let Some(socket) = &self.socket else { return Ok(None) };
        let at = socket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((stream, peer)) = at.connect().await else { return Ok(None) };
        if at.pid1.as_ref() != Some(&peer) {
            let container = self.mounts.runtime.inspect(&(&self.mounts.id).into()).await?;
            if container.pid.and_then(ProcessId::from_pid).as_ref() != Some(&peer) {
                tracing::warn!(
                    id = self.mounts.id.short(),
                    pid = peer.pid,
                    "another process answers at the guest's socket"
                );
                return Ok(None);
            }
            socket.lock().unwrap_or_else(PoisonError::into_inner).pid1 = Some(peer.clone());
        }
        Ok(Some(by_socket(stream, peer)))
    }

    /// Whether the guest answered at its socket before, and the directory has none now.
    fn lost_its_socket(&self) -> bool {
        let Some(socket) = &self.socket else { return false };
        let at = socket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        at.pid1.is_some() && at.is_empty()
    }

    fn by_stream(&self) -> Result<GuestStream> {
        let words = self.mounts.runtime.connect_words(&self.mounts.id);
        let mut child = process::spawn(&self.mounts.runtime.program().invocation(words), Stdin::Open)?;
        let (Some(reader), Some(writer)) = (child.stdout.take(), child.stdin.take()) else {
            return Err(Error::GuestFailed { reason: "the engine's program has no pipes".into() });
        };
        let error_output = child.stderr.take().map(|it| tokio::spawn(complaints(it)));
        Ok(GuestStream {
            error_output,
            hold: Box::new(ChildGuard(child)),
            ..GuestStream::plain(reader, writer, Transport::Stream)
        })
    }
}

/// Killed when it is dropped. It holds nothing that it should put away first.
struct ChildGuard(#[expect(dead_code, reason = "it is held for its drop")] Child);

/// Reads all error output, so that the program never blocks on it, and keeps the end.
async fn complaints(mut pipe: ChildStderr) -> String {
    let (mut stderr_end, mut buffer) = (coracle_types::Capture::new(MAX_STDERR), vec![0; 4 << 10]);
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        stderr_end.push(&buffer[..count]);
    }
    Excerpt::from_bytes(&stderr_end.bytes()).to_string()
}
