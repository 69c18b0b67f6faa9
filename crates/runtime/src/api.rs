//! The trait that every engine fulfils.

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_types::{Capability, ContainerId, ContainerPath, EngineKind, Error, Exec, ExecOutput, Handle, Result};

use crate::{
    Checkpoints, Container, ContainerUsage, EngineInfo, ImageStore, LabelFilter, Networks, Placed, Stacks, Volumes,
};

/// A container engine in our verbs. Every implementation passes the conformance suite.
///
/// Deadlines of single calls are enforced by the implementation and end in
/// [`Error::TimedOut`](coracle_types::Error::TimedOut): the effect is then unknown and has to be read.
#[async_trait]
pub trait ContainerRuntime: ImageStore + Networks + Volumes + Stacks + fmt::Debug + Send + Sync {
    /// The kind of the engine. Known without a request.
    fn kind(&self) -> EngineKind;

    /// The address of the engine, and whether it runs without root. Known without a request.
    fn endpoint(&self) -> Endpoint;

    /// Name, version and features of the engine. Asks the daemon where there is one.
    ///
    /// # Errors
    /// [`Error::Unavailable`](coracle_types::Error::Unavailable) when it does not answer.
    async fn info(&self) -> Result<EngineInfo>;

    /// Makes a container without starting it. `NameTaken` rather than adopting one that exists.
    async fn create(&self, spec: &Placed) -> Result<ContainerId>;

    /// As [`create`](Self::create), with the files that `parent` has at this moment in place of those of its image, which
    /// has to be the image of `spec`. A parent that runs goes on: it loses nothing of what it writes, and the new container
    /// has the files of one moment. What is mounted in the parent is not copied.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by engines that can only do it by an image.
    async fn fork(&self, parent: &ContainerId, spec: &Placed) -> Result<ContainerId> {
        let _ = (parent, spec);
        Err(Error::Unsupported { engine: self.kind(), capability: Capability::Fork })
    }

    /// The engine, if it can save states of containers.
    fn as_checkpoints(&self) -> Option<&dyn Checkpoints> {
        None
    }

    /// Starts it, or lets one go on that is paused. One that runs already is no error.
    ///
    /// # Errors
    /// [`Error::PortTaken`](coracle_types::Error::PortTaken) when a host port cannot be bound.
    async fn start(&self, id: &ContainerId) -> Result<()>;

    /// Ends its processes: TERM, `grace`, KILL. One that is stopped already is no error.
    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<()>;

    /// The engine's description of one container.
    ///
    /// # Errors
    /// [`Error::NoSuchContainer`](coracle_types::Error::NoSuchContainer) only when the engine answered and does not have it.
    async fn inspect(&self, handle: &Handle) -> Result<Container>;

    /// Containers that carry all of these labels, running or not.
    async fn list(&self, filter: &LabelFilter) -> Result<Vec<Container>>;

    /// Like [`list`](Self::list), but at most 0.3 s old, for users and agents who look around. Changes through this
    /// value are visible immediately. Decisions need [`list`](Self::list) or [`inspect`](Self::inspect).
    async fn list_recent(&self, filter: &LabelFilter) -> Result<Vec<Arc<Container>>> {
        Ok(self.list(filter).await?.into_iter().map(Arc::new).collect())
    }

    /// Its current usage; `None` where it cannot be measured from here, or the container is not running.
    async fn usage(&self, id: &ContainerId) -> Result<Option<ContainerUsage>>;

    /// Kills and removes it with its anonymous volumes. One that is gone is no error, so undo need not ask first.
    async fn remove(&self, id: &ContainerId) -> Result<RemovalOutcome>;

    /// Runs a command through the engine's own exec and waits for it.
    ///
    /// At a limit, or when `exec.cancel` fires, every process that carries the command's mark is ended and the output
    /// so far is given. A command that exits with any code is `Ok`.
    ///
    /// # Errors
    /// [`Error::NotRunning`](coracle_types::Error::NotRunning), [`Error::NoSuchPath`](coracle_types::Error::NoSuchPath)
    /// for a missing work directory, [`Error::NoShell`](coracle_types::Error::NoShell).
    async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput>;

    /// The connection to the guest inside, not made yet: exec, jobs and files go over it.
    ///
    /// It is made by the socket, where one is given, the engine is on this host, and the container's PID 1 answers there;
    /// else by a program that the engine runs inside. The engine is called only when the peer is not the PID 1 that was
    /// given.
    async fn link(&self, id: &ContainerId, socket: Option<SocketAt>, settings: LinkSettings) -> Result<Link>;

    /// Unpacks a tar (uncompressed, with relative names) below the existing directory `at`, with the owners and modes
    /// in the tar.
    async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()>;

    /// Writes a tar of `path` into `into`. The first entry is named like the last part of `path`. What comes is hostile
    /// data: read it through [`archive`](coracle_archive).
    ///
    /// # Errors
    /// [`Error::TooLarge`](coracle_types::Error::TooLarge) after `max_bytes`, of which the first entry's header is in `into`;
    /// [`Error::Engine`](coracle_types::Error::Engine) also for a missing path, since the engines do not distinguish the two.
    async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()>;

    /// Writes a tar of the container's own files, without mounts: for a stopped container whose mounts can no longer be
    /// created. Names are relative to the root.
    ///
    /// # Errors
    /// [`Error::TooLarge`](coracle_types::Error::TooLarge) after `max_bytes`; [`Error::Unsupported`] on engines whose
    /// [`download`](Self::download) itself omits such mounts.
    async fn export(&self, id: &ContainerId, into: File, max_bytes: u64) -> Result<()> {
        let _ = (id, into, max_bytes);
        Err(Error::Unsupported { engine: self.kind(), capability: Capability::CopyTar })
    }
}

/// The address of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A URL, or `local` for an engine without a daemon.
    pub address: String,
    /// It runs as the user, without root.
    pub rootless: bool,
    /// Its containers have root alone, who is the user outside.
    pub single_user: bool,
}

/// Whether a removal found something to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalOutcome {
    /// It was there and is gone now.
    Now,
    /// There was nothing.
    AlreadyGone,
}
