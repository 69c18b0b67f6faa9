//! The way to a container's guest: the socket in its link directory.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use coracle_runtime::link::{Dial, GuestStream, Link, LinkSettings, SocketAt, by_socket};
use coracle_runtime::{ContainerId, ContainerRuntime as _, Error, ProcessId, Result};

use super::EmbeddedRuntime;
use crate::container::{find, has_process, process_of};
use crate::engine::Engine;

pub(super) fn link(
    runtime: &EmbeddedRuntime,
    id: &ContainerId,
    socket: Option<&SocketAt>,
    settings: LinkSettings,
) -> Link {
    let dial = SocketDial { runtime: runtime.clone(), id: id.clone(), socket: socket.cloned().map(Mutex::new) };
    Link::new(Arc::new(dial), settings)
}

#[derive(Debug)]
struct SocketDial {
    runtime: EmbeddedRuntime,
    id: ContainerId,
    /// PID 1 is updated when the container was started anew.
    socket: Option<Mutex<SocketAt>>,
}

#[async_trait]
impl Dial for SocketDial {
    async fn dial(&self) -> Result<GuestStream> {
        let failed = |reason: &str| Error::GuestFailed { reason: reason.to_owned() };
        let Some(socket) = &self.socket else { return Err(failed("the container has no link directory")) };
        let at = socket.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((stream, peer)) = at.connect().await else {
            return Err(self.unanswered(failed("nobody answers at its socket")).await);
        };
        if at.pid1.as_ref() != Some(&peer) {
            if !is_guest(self.runtime.engine(), &self.id, &peer)? {
                return Err(failed("another process answers at its socket"));
            }
            socket.lock().unwrap_or_else(PoisonError::into_inner).pid1 = Some(peer.clone());
        }
        Ok(by_socket(stream, peer))
    }

    async fn diagnose(&self, failure: Error) -> Error {
        if let Some(err) = coracle_runtime::ended(&self.runtime, &self.id).await {
            return err;
        }
        let lost = self.socket.as_ref().is_some_and(|it| {
            let at = it.lock().unwrap_or_else(PoisonError::into_inner);
            at.pid1.is_some() && at.is_empty()
        });
        match failure {
            Error::GuestFailed { .. } if lost => {
                Error::FilesRemoved { missing: "the socket of the guest is gone".into() }
            }
            failure => failure,
        }
    }
}

impl SocketDial {
    /// A container that has ended is told as such. Looked at once: who waits for a guest that starts asks often.
    async fn unanswered(&self, failure: Error) -> Error {
        match self.runtime.inspect(&(&self.id).into()).await {
            Err(err @ Error::NoSuchContainer(_)) => err,
            Ok(it) if !it.running() => Error::NotRunning {
                status: it.status,
                exit_code: it.exit_code,
                oom_killed: it.oom_killed,
                output: None,
            },
            _ => failure,
        }
    }
}

/// Whether a peer is the container's PID 1, or the program that makes sockets for a container with a kernel of its own. No
/// other process of the host is in the control group of such a container, but every process inside that may write to the
/// link's directory has this peer: there is no telling the guest from root inside.
fn is_guest(engine: &Engine, id: &ContainerId, peer: &ProcessId) -> Result<bool> {
    let container = find(engine, &id.into())?;
    match container.config.runtime.filter(|it| it.has_own_kernel()) {
        Some(_) => has_process(&container, peer.pid),
        None => Ok(process_of(&container.dir)?.as_ref() == Some(peer)),
    }
}
