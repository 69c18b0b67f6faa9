//! The trait that every engine fulfils.

use std::fmt;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::link::{Link, LinkSettings, SocketAt};
use crate::{
    ByteSize, Container, ContainerId, ContainerPath, EngineInfo, EngineKind, Exec, ExecOutput, Handle, Image,
    ImageConfig, ImageId, ImageRef, LabelFilter, Network, NetworkName, Placed, Result, Stacks, Usage,
};

/// A container engine in our verbs. Every implementation passes the conformance suite.
///
/// Deadlines of single calls (containers.md 1.12) are kept by the implementation and end in
/// [`Error::TimedOut`](crate::Error::TimedOut): the effect is then unknown and has to be asked for.
#[async_trait]
pub trait ContainerRuntime: Stacks + fmt::Debug + Send + Sync {
    /// Which engine this is. Known without asking it.
    fn kind(&self) -> EngineKind;

    /// Where it listens, and whether it runs without root. Known without asking it.
    fn endpoint(&self) -> Endpoint;

    /// What the engine says of itself. Asks the daemon where there is one.
    ///
    /// # Errors
    /// [`Error::Unavailable`](crate::Error::Unavailable) when it does not answer.
    async fn info(&self) -> Result<EngineInfo>;

    /// Makes a container without starting it. `NameTaken` rather than adopting one that exists.
    async fn create(&self, spec: &Placed) -> Result<ContainerId>;

    /// Starts it, or lets one go on that is paused. One that runs already is no error.
    ///
    /// # Errors
    /// [`Error::PortTaken`](crate::Error::PortTaken) when a host port cannot be bound.
    async fn start(&self, id: &ContainerId) -> Result<()>;

    /// Ends its processes: TERM, `grace`, KILL. One that is stopped already is no error.
    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<()>;

    /// What the engine knows of one container.
    ///
    /// # Errors
    /// [`Error::NoSuchContainer`](crate::Error::NoSuchContainer) only when the engine answered and does not have it.
    async fn inspect(&self, handle: &Handle) -> Result<Container>;

    /// Containers that carry all of these labels, running or not.
    async fn list(&self, filter: &LabelFilter) -> Result<Vec<Container>>;

    /// The same, as they were at most 0.3 s ago: for people and agents who look around. Changes that were made through this
    /// value are seen at once. An act is decided on what [`list`](Self::list) or [`inspect`](Self::inspect) answers.
    async fn list_recent(&self, filter: &LabelFilter) -> Result<Vec<Arc<Container>>> {
        Ok(self.list(filter).await?.into_iter().map(Arc::new).collect())
    }

    /// What it uses at the moment; `None` where that cannot be seen from here, or it does not run.
    async fn usage(&self, id: &ContainerId) -> Result<Option<Usage>>;

    /// Kills and removes it with its anonymous volumes. One that is gone is no error, so undo need not ask first.
    async fn remove(&self, id: &ContainerId) -> Result<Removed>;

    /// Runs a command through the engine's own exec and waits for it (containers.md 9.13).
    ///
    /// At a limit, or when `exec.cancel` fires, every process that carries the command's mark is ended and the output
    /// so far is given. A command that exits with any code is `Ok`.
    ///
    /// # Errors
    /// [`Error::NotRunning`](crate::Error::NotRunning), [`Error::NoSuchPath`](crate::Error::NoSuchPath) for a missing
    /// work directory, [`Error::NoShell`](crate::Error::NoShell).
    async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput>;

    /// The connection to the guest inside, not made yet: exec, jobs and files go over it.
    ///
    /// It is made by the socket, where one is given, the engine is on this host, and the container's PID 1 answers there;
    /// else by a program that the engine runs inside. The engine is asked only when the peer is not the PID 1 that was
    /// given.
    async fn link(&self, id: &ContainerId, socket: Option<&SocketAt>, settings: LinkSettings) -> Result<Link>;

    /// Unpacks a tar (ours: uncompressed, relative names) below the existing directory `at`, with the owners and modes
    /// that the tar names.
    async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()>;

    /// Writes a tar of `path` into `into`. The first entry is named like the last part of `path`. What comes is hostile
    /// data: read it through [`archive`](crate::archive).
    ///
    /// # Errors
    /// [`Error::TooLarge`](crate::Error::TooLarge) after `max_bytes`; [`Error::Engine`](crate::Error::Engine) also for
    /// a path that is missing, since the engines do not tell the two apart.
    async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()>;

    /// Acts on images; answers the images that the act found or made.
    async fn image(&self, act: ImageAct) -> Result<Vec<Image>>;

    /// Acts on networks; answers the networks that the act found or made.
    async fn network(&self, act: NetworkAct) -> Result<Vec<Network>>;
}

/// What can be done with images.
#[derive(Debug)]
pub enum ImageAct {
    /// The local images of these names, in the order asked and in one call. One that is missing is left out:
    /// [`Image::is_named`] tells which is which.
    Find(Vec<ImageRef>),
    /// Fetches from a registry within the deadline.
    Pull {
        /// What to fetch.
        image: ImageRef,
        /// After this much time it is given up.
        deadline: Duration,
    },
    /// Makes an image of one layer from an uncompressed tar of a root file system.
    Import {
        /// The root file system.
        tar: File,
        /// The name it gets.
        tag: ImageRef,
        /// Environment of the image (`PATH` above all: imported images have none).
        env: Vec<(String, String)>,
        /// Labels of the image.
        labels: Vec<(String, String)>,
    },
    /// Makes an image of a container's files, of what it added to its image as one more layer. What lies in a mount is
    /// not among them. The container is paused meanwhile, where its engine can.
    ///
    /// Environment and labels of the container go along: the labels can be given other values here and not be taken away.
    Commit {
        /// The container.
        container: ContainerId,
        /// The name it gets, or none.
        tag: Option<ImageRef>,
        /// Labels of the image, beside those of the container. Without line breaks.
        labels: Vec<(String, String)>,
        /// How the image starts, in place of how the container was started.
        config: ImageConfig,
    },
    /// Makes an image by a Dockerfile.
    Build(Box<ImageBuild>),
    /// Local images that carry all of these labels.
    List(LabelFilter),
    /// Gives an image another name. One that had it loses it.
    Tag {
        /// Which.
        image: ImageId,
        /// Its name.
        tag: ImageRef,
    },
    /// Removes by id. One that is gone is no error; one with names in several repositories is refused.
    Remove(ImageId),
    /// Takes one of its names from an image, which goes with its last one. A name that no image has is no error.
    Untag(ImageRef),
}

/// An image to be made by a Dockerfile. What it begins with has to be here: the engine fetches nothing by itself.
#[derive(Clone, Debug)]
pub struct ImageBuild {
    /// A directory of ours, with all that the Dockerfile may copy and nothing else.
    pub context: PathBuf,
    /// The Dockerfile, which need not lie in it.
    pub dockerfile: PathBuf,
    /// The name the image gets.
    pub tag: ImageRef,
    /// Values of its arguments, which stay in the image's history.
    pub args: Vec<(String, String)>,
    /// The stage that is meant; the last one when missing.
    pub target: Option<String>,
    /// Its commands reach nothing.
    pub offline: bool,
    /// For each of its commands.
    pub memory: Option<ByteSize>,
    /// Labels of the image.
    pub labels: Vec<(String, String)>,
    /// After this much time it is given up.
    pub deadline: Duration,
}

/// What can be done with networks.
#[derive(Debug)]
pub enum NetworkAct {
    /// The network of that name, or none.
    Find(NetworkName),
    /// Makes a bridge network. `NetworkTaken` if the name exists.
    Create {
        /// Its name.
        name: NetworkName,
        /// Labels of the network.
        labels: Vec<(String, String)>,
        /// Whether containers on it may reach each other. Podman parts networks and not their members, so there `false`
        /// is [`Error::Unsupported`](crate::Error::Unsupported): give each container a network of its own.
        reach: bool,
        /// No way out.
        internal: bool,
    },
    /// Networks that carry all of these labels.
    List(LabelFilter),
    /// Removes by id or name. One that is gone is no error.
    Remove(String),
}

/// Where an engine listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// A URL, or `local` for an engine without a daemon.
    pub address: String,
    /// It runs as the person, without root.
    pub rootless: bool,
}

/// Whether a removal found something to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It was there and is gone now.
    Now,
    /// There was nothing.
    AlreadyGone,
}
