//! Docker, Podman and Apple's `container` by their own programs: one implementation, and a dialect for what differs.

mod api;
mod apple;
mod args;
mod client;
mod compose;
pub mod conf;
pub mod detect;
mod dialect;
mod exec;
mod host_gateway;
mod images;
mod link;
mod lookup;
mod networks;
mod read;
#[cfg(test)]
mod scripted;
mod stacks;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::args::{Facts, Words};
use self::client::Client;
pub use self::dialect::Dialect;
use self::lookup::EngineLookup;
use crate::host::cgroup;
use crate::host::process::Stdin;
use crate::link::{Link, LinkSettings, SocketAt};
use crate::{
    Capability, Container, ContainerId, ContainerPath, ContainerRuntime, Endpoint, EngineInfo, EngineKind, Error, Exec,
    ExecOutput, GuestOn, Handle, Image, ImageAct, LabelFilter, Network, NetworkAct, NetworkOn, Placed, Removed, Result,
    Status, Usage,
};

/// How to reach an engine. Decided once, from configuration and host.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// The engine's program; found in the usual places when missing.
    pub program: Option<PathBuf>,
    /// Where it listens; its local endpoint when missing.
    pub endpoint: Option<String>,
    /// A directory of ours, for the configuration that engines run with.
    pub config_dir: PathBuf,
    /// The person's home.
    pub home: PathBuf,
    /// `XDG_RUNTIME_DIR`, which rootless engines need.
    pub runtime_dir: Option<PathBuf>,
    /// Temporary files of the engine's program go here.
    pub temp_dir: PathBuf,
    /// Whether reads may go over the engine's API.
    pub api: ApiUse,
}

/// How the engine is read. Acts are its program's in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ApiUse {
    /// Over the socket of the engine, where it answers; else by the program.
    #[default]
    Auto,
    /// By the program.
    Never,
    /// Over this socket, which is that of the engine behind the program.
    At(PathBuf),
}

/// An engine behind its program.
#[derive(Clone, Debug)]
pub struct CliRuntime {
    dialect: Dialect,
    client: Client,
    lookup: Arc<EngineLookup>,
    cpu_samples: Arc<cgroup::CpuSamples>,
    facts: Facts,
}

/// Deadlines of engine calls (containers.md 1.12).
/// A removal that another caller began ends within seconds on a busy engine.
const REMOVAL_LOOKS: usize = 15;
const REMOVAL_INTERVAL: Duration = Duration::from_millis(200);

mod deadline {
    use std::time::Duration;

    /// Long, for an engine that commits or imports beside it on a slow disk holds its lock meanwhile: Podman's `info` was
    /// seen to take more than 10 s on two busy cores.
    pub(super) const READ: Duration = Duration::from_secs(30);
    pub(super) const SIZE: Duration = Duration::from_secs(5);
    pub(super) const MAKE: Duration = Duration::from_secs(60);
    pub(super) const REMOVE: Duration = Duration::from_secs(30);
    pub(super) const NETWORK: Duration = Duration::from_secs(15);
    pub(super) const COPY: Duration = Duration::from_secs(600);
    pub(super) const COMMIT: Duration = Duration::from_secs(300);
    pub(super) const IMPORT: Duration = Duration::from_secs(600);
}

impl CliRuntime {
    /// Finds the program and prepares its configuration. Asks the engine nothing.
    ///
    /// # Errors
    /// [`Error::NotInstalled`]; [`Error::Host`] when the configuration cannot be written.
    pub fn connect(dialect: Dialect, settings: &EngineSettings) -> Result<Self> {
        let client = Client::new(dialect, settings)?;
        let selinux = std::fs::read("/sys/fs/selinux/enforce").is_ok_and(|it| it.starts_with(b"1"));
        let rootless = match dialect {
            Dialect::Docker => false,
            Dialect::Podman => !rustix::process::geteuid().is_root(),
            // Its service runs as the person.
            Dialect::Apple => true,
        };
        let user_network = ["slirp4netns", "pasta"].into_iter().find(|it| detect::find_program(it).is_ok());
        let pauses = !rootless || std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let bounds = (dialect == Dialect::Podman).then(|| conf::Machine::look().bounds()).flatten();
        let lookup = Arc::new(EngineLookup::new(dialect, settings, client.clone()));
        Ok(Self {
            dialect,
            client,
            lookup,
            cpu_samples: Arc::default(),
            facts: Facts { rootless, selinux, pauses, bounds, user_network, host_gateway: None },
        })
    }

    /// The words that give a person a terminal in a container, for [`Invocation::replace_this_process`].
    ///
    /// [`Invocation::replace_this_process`]: crate::host::process::Invocation::replace_this_process
    #[must_use]
    pub fn invocation(&self, words: impl IntoIterator<Item = String>) -> crate::host::process::Invocation {
        self.client.invocation(Words(words.into_iter().map(Into::into).collect()))
    }

    /// Whether the engine answers and has this container. Exit codes and words of a failed act tell neither.
    async fn exists(&self, handle: &Handle) -> Result<bool> {
        match self.dialect {
            Dialect::Docker | Dialect::Podman => self.lookup.container_exists(handle).await,
            Dialect::Apple => Ok(!apple::ids_of(&self.client, handle).await?.is_empty()),
        }
    }

    /// Whether a container that could not be removed stays. The engine refuses a second removal while the first one goes on,
    /// whose caller may have been killed.
    async fn stays(&self, id: &ContainerId) -> Result<bool> {
        for _ in 0..REMOVAL_LOOKS {
            if !self.exists(&id.into()).await? {
                return Ok(false);
            }
            tokio::time::sleep(REMOVAL_INTERVAL).await;
        }
        self.exists(&id.into()).await
    }

    /// The reason of a failed act on a container: it is gone, or what the engine said.
    async fn blame(&self, id: &ContainerId, failure: Error) -> Error {
        match self.exists(&id.into()).await {
            Ok(true) => failure,
            Ok(false) => Error::NoSuchContainer(id.to_string()),
            Err(unavailable) => unavailable,
        }
    }

    async fn on_container(&self, verb: &'static str, words: Words, id: &ContainerId, within: Duration) -> Result<()> {
        let done = self.client.ask(verb, words, within).await;
        self.lookup.note_changed(id);
        match done {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.blame(id, failure).await),
        }
    }

    async fn taken_port(&self, id: &ContainerId) -> Option<u16> {
        if self.dialect == Dialect::Apple {
            return None;
        }
        let ports = self.lookup.wanted_ports(id).await.ok()?;
        let taken = |it: &u16| std::net::TcpListener::bind(("127.0.0.1", *it)).is_err();
        ports.into_iter().find(taken)
    }
}

#[async_trait]
impl ContainerRuntime for CliRuntime {
    fn kind(&self) -> EngineKind {
        self.dialect.kind()
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.client.endpoint().to_owned(), rootless: self.facts.rootless }
    }

    async fn info(&self) -> Result<EngineInfo> {
        if self.dialect == Dialect::Apple {
            return apple::info(&self.client).await;
        }
        let mut info = self.lookup.info().await?;
        info.compose_version = self.compose_version().await;
        Ok(info)
    }

    async fn create(&self, spec: &Placed) -> Result<ContainerId> {
        if spec.spec().read_only && spec.guest() == Some(&GuestOn::Uploaded) {
            // What is put in before the start lies on the root, and the guest needs its place beside it to be writable.
            return Err(Error::Unsupported { engine: self.kind(), capability: Capability::ReadOnlyRoot });
        }
        let alone = *spec.network() == NetworkOn::Alone && self.dialect == Dialect::Podman;
        if alone && self.facts.user_network.is_none() {
            return Err(Error::NotInstalled { program: "slirp4netns".into() });
        }
        let words = match self.dialect {
            Dialect::Docker | Dialect::Podman => {
                let facts = Facts { host_gateway: self.host_gateway(spec).await?, ..self.facts };
                args::create(self.dialect, facts, spec)
            }
            Dialect::Apple => apple::create(&self.client, spec).await?,
        };
        match self.client.ask("create", words, deadline::MAKE).await {
            Ok(ended) => {
                let id = read::created(self.dialect, &ended.stdout.bytes())?;
                self.lookup.note_created(&id);
                Ok(id)
            }
            Err(failure) => {
                let name = spec.spec().name.clone();
                let is_taken = self.exists(&Handle::Name(name.clone())).await?;
                Err(if is_taken { Error::NameTaken(name) } else { failure })
            }
        }
    }

    async fn start(&self, id: &ContainerId) -> Result<()> {
        let words = args::on_container(self.dialect, "start", id.as_str());
        let started = self.client.ask("start", words, deadline::MAKE).await;
        self.lookup.note_changed(id);
        match started {
            Ok(_) => Ok(()),
            // Apple's engine refuses to start what runs already.
            Err(_) if self.dialect == Dialect::Apple && self.inspect(&id.into()).await?.running() => Ok(()),
            Err(failure) => match self.inspect(&id.into()).await {
                Ok(it) if it.status == Status::Paused => {
                    self.on_container("unpause", args::on("unpause", [id.as_str()]), id, deadline::MAKE).await
                }
                _ => match self.taken_port(id).await {
                    Some(port) => Err(Error::PortTaken(port)),
                    None => Err(self.blame(id, failure).await),
                },
            },
        }
    }

    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        if self.dialect == Dialect::Apple {
            return apple::stop(self, id, grace).await;
        }
        let words = args::stop(self.dialect, id, grace);
        self.on_container("stop", words, id, deadline::REMOVE + grace).await
    }

    async fn inspect(&self, handle: &Handle) -> Result<Container> {
        match self.dialect {
            Dialect::Docker | Dialect::Podman => self.lookup.inspect_container(handle).await,
            Dialect::Apple => apple::inspect(&self.client, handle).await,
        }
    }

    async fn list(&self, filter: &LabelFilter) -> Result<Vec<Container>> {
        match self.dialect {
            Dialect::Docker | Dialect::Podman => self.lookup.list_containers(filter).await,
            Dialect::Apple => apple::list(&self.client, filter).await,
        }
    }

    async fn list_recent(&self, filter: &LabelFilter) -> Result<Vec<Arc<Container>>> {
        match self.dialect {
            Dialect::Docker | Dialect::Podman => self.lookup.list_recent_containers(filter).await,
            Dialect::Apple => Ok(self.list(filter).await?.into_iter().map(Arc::new).collect()),
        }
    }

    async fn usage(&self, id: &ContainerId) -> Result<Option<Usage>> {
        if self.dialect == Dialect::Apple {
            return apple::usage(&self.client, id).await;
        }
        let Some(pid) = self.inspect(&id.into()).await?.pid else { return Ok(None) };
        let (used, written) =
            tokio::join!(cgroup::used(pid, id.as_str(), &self.cpu_samples), self.lookup.written_bytes(id));
        let Some(used) = used else { return Ok(None) };
        // Counting takes the longer the more it wrote; the rest is worth telling all the same.
        let disk_bytes = written.ok().flatten();
        let cgroup::Used { memory_bytes, pids, cpu_percent } = used;
        Ok(Some(Usage { memory_bytes, pids, cpu_percent, disk_bytes }))
    }

    async fn remove(&self, id: &ContainerId) -> Result<Removed> {
        if self.dialect == Dialect::Apple {
            return apple::remove(&self.client, id).await;
        }
        let removed = self.client.run("remove", args::remove(self.dialect, id), deadline::REMOVE).await?;
        self.lookup.note_changed(id);
        // `rm --force` exits 0 for a container that does not exist, on both engines; what it removed it prints by id.
        let now = read::ids(&removed.stdout.bytes()).iter().any(|it| it == id.as_str());
        match now {
            true if removed.ok() => Ok(Removed::Now),
            _ if self.stays(id).await? => Err(self.client.failed("remove", &removed)),
            true => Ok(Removed::Now),
            false => Ok(Removed::AlreadyGone),
        }
    }

    async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput> {
        exec::exec(self, id, exec).await
    }

    async fn link(&self, id: &ContainerId, socket: Option<&SocketAt>, settings: LinkSettings) -> Result<Link> {
        Ok(link::link(self, id, socket, settings))
    }

    async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
        let uploaded = match self.dialect {
            Dialect::Docker | Dialect::Podman => {
                let words = args::upload(self.dialect, id, at);
                self.client.feed_swept("upload", words, Stdin::File(tar), deadline::COPY).await.map(drop)
            }
            Dialect::Apple => apple::upload(&self.client, id, at, tar).await,
        };
        match uploaded {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.blame(id, failure).await),
        }
    }

    async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()> {
        let downloaded = match self.dialect {
            Dialect::Docker | Dialect::Podman => {
                self.client.store("download", args::download(id, path), into, max_bytes, deadline::COPY).await
            }
            Dialect::Apple => apple::download(&self.client, id, path, (into, max_bytes)).await,
        };
        match downloaded {
            Err(failure @ Error::Engine { .. }) => Err(self.blame(id, failure).await),
            other => other,
        }
    }

    async fn image(&self, act: ImageAct) -> Result<Vec<Image>> {
        match self.dialect {
            Dialect::Docker | Dialect::Podman => self.images(act).await,
            Dialect::Apple => apple::image(&self.client, act).await,
        }
    }

    async fn network(&self, act: NetworkAct) -> Result<Vec<Network>> {
        match self.dialect {
            Dialect::Docker | Dialect::Podman => self.networks(act).await,
            Dialect::Apple => apple::network(&self.client, act).await,
        }
    }
}

/// Both engines print `[]` or nothing when they found nothing.
fn is_silent(output: &[u8]) -> bool {
    matches!(output.trim_ascii(), b"" | b"[]")
}
