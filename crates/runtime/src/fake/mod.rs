//! An engine in memory: real state, strict rules, no mock.
//!
//! [`FakeRuntime`] passes the same conformance suite as Docker and Podman. A test arranges state (an image, a reply, a
//! fault), acts through the trait, and looks at state (`inspect`, [`FakeRuntime::transcript`], [`FakeRuntime::root`]).
//!
//! **Commands** are answered from the table of [`FakeRuntime::reply`]. One made by `FakeRuntime::with_programs` (feature
//! `programs`, test builds only) runs all others as real programs of the host with the container's root directory as
//! the base of their work directory. That is no container: a script that names an absolute path means the host's, and
//! every command runs with the rights of the test. `exec.user` is applied by `FakeRuntime::with_programs_as_users` alone.
//! So it is chosen by name, and never by a feature alone: features are shared by all crates of one build.
//!
//! **Files** of a container lie in a temporary directory; a bind appears there as a link to the host's directory.
//!
//! **Saved.** A real engine outlives the programs that use it; this one ends with its process. Test builds can save its
//! state with `FakeRuntime::save_to` and load it into another one with `FakeRuntime::load_from`.
//!
//! **Faults** are states: [`FakeRuntime::crash`], [`FakeRuntime::disappear`], [`FakeRuntime::fail_next`],
//! [`FakeRuntime::slow`], [`FakeRuntime::unavailable`].

mod containers;
#[cfg(any(test, feature = "programs"))]
mod dump;
mod exec;
mod fault_injection;
mod files;
mod guest;
mod images;
#[cfg(test)]
mod invariants;
mod networks;
mod ports;
mod programs;
#[cfg(any(test, feature = "programs"))]
mod running;
mod stacks;
#[cfg(test)]
mod trials;
mod volumes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_types::{ContainerId, ContainerPath, EngineKind, Error, Exec, ExecOutput, Handle, Result, random_hex};

use self::programs::Programs;
use crate::{
    Container, ContainerRuntime, ContainerUsage, Endpoint, EngineInfo, LabelFilter, Network, Placed, RemovalOutcome,
    Volume,
};

pub use exec::Reply;
pub use fault_injection::Verb;
pub use images::LOCAL_IMAGE;

/// An engine in memory. Clones are handles to the same engine.
#[derive(Clone, Debug)]
pub struct FakeRuntime {
    state: Arc<Mutex<EngineState>>,
}

/// Everything the engine knows. Locked for single steps only, never across an await.
#[derive(Debug, Default)]
struct EngineState {
    containers: BTreeMap<ContainerId, containers::FakeContainer>,
    images: Vec<images::StoredImage>,
    networks: Vec<Network>,
    volumes: Vec<Volume>,
    /// Contents of named volumes.
    contents: BTreeMap<String, volumes::Content>,
    registry: BTreeSet<String>,
    pull_takes: Duration,
    replies: BTreeMap<String, VecDeque<Reply>>,
    /// Outlives the container, so that a test can look after `destroy`.
    transcripts: BTreeMap<ContainerId, Vec<String>>,
    faults: fault_injection::Faults,
    started: u32,
    programs: Programs,
}

impl Default for FakeRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeRuntime {
    /// An engine with one local image, [`LOCAL_IMAGE`], that starts no programs.
    #[must_use]
    pub fn new() -> Self {
        Self::from_programs(Programs::None)
    }

    /// An engine that runs commands without a reply as programs of the host. See the module's warning.
    #[cfg(feature = "programs")]
    #[must_use]
    pub fn with_programs() -> Self {
        Self::from_programs(Programs::AsCaller)
    }

    /// The same, with programs of a guest run as the command's user: files and programs then belong to one user. Needs
    /// root, and `setpriv` of util-linux.
    #[cfg(feature = "programs")]
    #[must_use]
    pub fn with_programs_as_users() -> Self {
        Self::from_programs(Programs::AsUser)
    }

    fn from_programs(programs: Programs) -> Self {
        let (images, networks) = (vec![images::local()], networks::predefined());
        Self { state: Arc::new(Mutex::new(EngineState { images, networks, programs, ..EngineState::default() })) }
    }

    /// Runs one step on the state. A panic in another step leaves it consistent: each step checks before it changes.
    fn with<T>(&self, step: impl FnOnce(&mut EngineState) -> T) -> T {
        step(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The directory on the host that is a container's root, for tests that arrange or look at files.
    ///
    /// # Errors
    /// [`Error::NoSuchContainer`].
    pub fn root(&self, id: &ContainerId) -> Result<PathBuf> {
        self.with(|state| Ok(state.machine(id)?.files.root().to_owned()))
    }
}

#[async_trait]
impl ContainerRuntime for FakeRuntime {
    fn kind(&self) -> EngineKind {
        EngineKind::Fake
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { address: "local".into(), rootless: false, single_user: false }
    }

    async fn info(&self) -> Result<EngineInfo> {
        self.enter(Verb::Info).await?;
        Ok(EngineInfo {
            kind: EngineKind::Fake,
            version: env!("CARGO_PKG_VERSION").into(),
            endpoint: self.endpoint().address,
            rootless: self.endpoint().rootless,
            single_user: false,
            arch: arch().into(),
            cgroup: 2,
            data_root: PathBuf::from("/nonexistent/coracle-fake"),
            storage_driver: None,
            compose_version: None,
            gpu: false,
            selinux: false,
            ignored_limits: Vec::new(),
        })
    }

    async fn create(&self, spec: &Placed) -> Result<ContainerId> {
        self.enter(Verb::Create).await?;
        self.create_container(spec).await
    }

    async fn start(&self, id: &ContainerId) -> Result<()> {
        self.enter(Verb::Start).await?;
        let engine = Arc::downgrade(&self.state);
        self.with(|state| state.start(id, engine))
    }

    /// As on the engines, TERM and the grace are for PID 1 alone, and this one obeys: its other processes end with it.
    async fn stop(&self, id: &ContainerId, _grace: Duration) -> Result<()> {
        self.enter(Verb::Stop).await?;
        self.with(|state| state.end(id, 143))
    }

    async fn inspect(&self, handle: &Handle) -> Result<Container> {
        self.enter(Verb::Inspect).await?;
        self.with(|state| state.find(handle))
    }

    async fn list(&self, filter: &LabelFilter) -> Result<Vec<Container>> {
        self.enter(Verb::List).await?;
        Ok(self.with(|state| state.list(filter)))
    }

    async fn usage(&self, id: &ContainerId) -> Result<Option<ContainerUsage>> {
        self.with(|state| state.machine(id).map(drop))?;
        Ok(None)
    }

    async fn remove(&self, id: &ContainerId) -> Result<RemovalOutcome> {
        self.enter(Verb::Remove).await?;
        Ok(self.with(|state| state.remove(id)))
    }

    async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput> {
        exec.check_without_guest(EngineKind::Fake)?;
        self.enter(Verb::Exec).await?;
        self.run(id, exec).await
    }

    async fn link(&self, id: &ContainerId, _socket: Option<SocketAt>, settings: LinkSettings) -> Result<Link> {
        self.with(|state| state.machine(id).map(drop))?;
        Ok(Link::new(Arc::new(guest::FakeDial { fake: self.clone(), id: id.clone() }), settings))
    }

    async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
        self.enter(Verb::Upload).await?;
        let (files, at) = (self.with(|state| state.machine(id).map(|it| it.files.clone()))?, at.clone());
        off_thread(move || files.upload(&at, tar)).await
    }

    async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()> {
        self.enter(Verb::Download).await?;
        let (files, path) = (self.with(|state| state.machine(id).map(|it| it.files.clone()))?, path.clone());
        off_thread(move || files.download(&path, into, max_bytes)).await
    }
}

/// Reading and writing files blocks, and tests run on one thread.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined
        .unwrap_or_else(|err| Err(Error::Host { what: "the fake engine's work broke off".into(), source: err.into() }))
}

fn refused(verb: Verb, reason: impl AsRef<str>) -> Error {
    Error::Engine {
        verb: verb.as_str(),
        exit: 1,
        excerpt: coracle_types::Excerpt::from_bytes(reason.as_ref().as_bytes()),
    }
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

fn random_id() -> String {
    random_hex::<32>()
}

fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
