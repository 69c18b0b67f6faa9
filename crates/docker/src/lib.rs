//! The engines Docker and Podman: one implementation, and a [`Dialect`] for the differences.
//!
//! [`CliRuntime`] makes changes with the engine's own program, and reads over the engine's API if the socket responds.
//!
//! ```no_run
//! use coracle_docker::{CliRuntime, Dialect};
//! use coracle_engine_program::EngineSettings;
//! use coracle_runtime::{ContainerRuntime as _, LabelFilter};
//!
//! # async fn example(settings: &EngineSettings) -> coracle_types::Result<()> {
//! let podman = CliRuntime::connect(Dialect::Podman, settings)?;
//! let containers = podman.list(&LabelFilter::default()).await?;
//! # drop(containers);
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant:** values from input are passed as one `--flag=value` argument or after `--`; none becomes shell text.
//! **Invariant:** the state of an engine is read as JSON, from `inspect` for example; no code parses columns or the wording
//! of errors.
//! **Invariant:** only idempotent changes go over an engine's API. Its peer is root or the same user, and without an API the
//! program is used instead.

#![warn(missing_docs)]

mod api;
mod args;
mod compose;
pub mod conf;
mod dialect;
mod host_gateway;
mod images;
#[cfg(test)]
mod link_tests;
mod lookup;
mod networks;
mod program_options;
mod read;
mod running_process;
#[cfg(test)]
pub(crate) mod scripted;
mod stacks;
mod transient;
mod volumes;

use std::ffi::OsString;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hyper::Method;

use self::args::{EngineArgs, EngineFacts};
pub use self::dialect::Dialect;
use self::lookup::EngineLookup;
use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_engine_program as program;
use coracle_engine_program::{EngineProgram, EngineSettings, RunsCommands, SshDestination, deadline};
use coracle_host::cgroup;
use coracle_host::find_program::find_program;
use coracle_host::process::Stdin;
use coracle_host::registry_login::LoginFiles;
use coracle_runtime::{
    Container, ContainerRuntime, ContainerUsage, Endpoint, EngineInfo, GuestDelivery, LabelFilter, NetworkAttachment,
    Placed, RemovalOutcome,
};
use coracle_types::{
    Capability, ContainerId, ContainerPath, ContainerStatus, EngineKind, Error, Exec, ExecOutput, Handle, Ids, Result,
};

/// An engine that is controlled with its command-line program.
#[derive(Clone, Debug)]
pub struct CliRuntime {
    dialect: Dialect,
    client: EngineProgram,
    lookup: Arc<EngineLookup>,
    cpu_samples: Arc<cgroup::CpuSamples>,
    facts: EngineFacts,
    /// Registry logins for pulls by Docker.
    logins: LoginFiles,
}

/// How often to check whether a removal that another caller began is complete. Even a busy engine needs only seconds.
const REMOVAL_LOOKS: usize = 15;
const REMOVAL_INTERVAL: Duration = Duration::from_millis(200);

impl CliRuntime {
    /// Finds the program and prepares its configuration. Does not call the engine.
    ///
    /// # Errors
    /// [`Error::NotInstalled`]; [`Error::Host`] if the configuration cannot be written.
    pub fn connect(dialect: Dialect, settings: &EngineSettings) -> Result<Self> {
        let client =
            EngineProgram::find(dialect.kind(), settings, program_options::program_options(dialect, settings)?)?;
        let facts = if client.is_local() { local_facts(dialect) } else { remote_facts(dialect, client.endpoint()) };
        let lookup = Arc::new(EngineLookup::new(dialect, settings, client.clone()));
        let logins = settings.logins.clone();
        Ok(Self { dialect, client, lookup, cpu_samples: Arc::default(), facts, logins })
    }

    /// Whether the container exists. An error if the engine does not respond; a failed call's exit code and text do not
    /// distinguish the two.
    async fn exists(&self, handle: &Handle) -> Result<bool> {
        self.lookup.container_exists(handle).await
    }

    /// Whether a container whose removal failed still exists after a while. The engine refuses a second removal during the
    /// first one, whose caller may have been killed.
    async fn stays(&self, id: &ContainerId) -> Result<bool> {
        for _ in 0..REMOVAL_LOOKS {
            if !self.exists(&id.into()).await? {
                return Ok(false);
            }
            tokio::time::sleep(REMOVAL_INTERVAL).await;
        }
        self.exists(&id.into()).await
    }

    /// Returns the reason for a failed call on a container: it does not exist, the engine does not respond, or `failure`.
    async fn diagnose(&self, id: &ContainerId, failure: Error) -> Error {
        match self.exists(&id.into()).await {
            Ok(true) => failure,
            Ok(false) => Error::NoSuchContainer(id.to_string()),
            Err(unavailable) => unavailable,
        }
    }

    async fn on_container(
        &self,
        verb: &'static str,
        words: EngineArgs,
        id: &ContainerId,
        within: Duration,
    ) -> Result<()> {
        let done = self.client.query(verb, words, within).await;
        self.lookup.note_changed(id);
        match done {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.diagnose(id, failure).await),
        }
    }

    /// Finds the port that made a start fail, because another program of this host uses it.
    async fn taken_port(&self, id: &ContainerId) -> Option<u16> {
        if !self.client.is_local() {
            return None;
        }
        let ports = self.lookup.wanted_ports(id).await.ok()?;
        // Any other error, such as a privileged port, says nothing about the engine's attempt.
        let is_taken = |port: &u16| {
            let bound = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, *port));
            bound.is_err_and(|err| err.kind() == std::io::ErrorKind::AddrInUse)
        };
        ports.into_iter().find(is_taken)
    }
}

impl RunsCommands for CliRuntime {
    fn program(&self) -> &EngineProgram {
        &self.client
    }

    fn shares_sockets(&self) -> bool {
        self.client.is_local()
    }

    fn exec_words(&self, id: &ContainerId, exec: &Exec, mark: &str) -> (EngineArgs, Vec<(String, OsString)>) {
        (args::exec(id, exec, mark), Vec::new())
    }

    fn constant_program(&self, id: &ContainerId, user: Ids, program: &str) -> EngineArgs {
        args::constant_program(id, user, program)
    }

    fn connect_words(&self, id: &ContainerId) -> EngineArgs {
        args::connect(id)
    }
}

#[async_trait]
impl ContainerRuntime for CliRuntime {
    fn kind(&self) -> EngineKind {
        self.dialect.kind()
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.client.endpoint().to_owned(), rootless: self.facts.rootless, single_user: false }
    }

    async fn info(&self) -> Result<EngineInfo> {
        self.lookup.info().await
    }

    async fn create(&self, spec: &Placed) -> Result<ContainerId> {
        if !self.client.is_local() && !spec.spec().mounts.is_empty() {
            return Err(Error::Unsupported { engine: self.kind(), capability: Capability::Bind });
        }
        if spec.spec().read_only && spec.guest() == Some(&GuestDelivery::Uploaded) {
            // The guest's program is uploaded to the root file system, where its directory must be writable.
            return Err(Error::Unsupported { engine: self.kind(), capability: Capability::ReadOnlyRoot });
        }
        let alone = *spec.network() == NetworkAttachment::Alone && self.dialect == Dialect::Podman;
        if alone && self.facts.user_network.is_none() {
            return Err(Error::NotInstalled { program: "slirp4netns".into() });
        }
        let facts = EngineFacts { host_gateway: self.host_gateway(spec).await?, ..self.facts };
        let words = args::create(self.dialect, facts, spec);
        match self.client.query("create", words, deadline::MAKE).await {
            Ok(ended) => {
                let id = read::created(&ended.stdout.bytes())?;
                self.lookup.note_created(&id);
                Ok(id)
            }
            // Does not check the name: a slow engine may still create this very container.
            Err(failure @ Error::TimedOut { .. }) => Err(failure),
            Err(failure) => {
                let name = spec.spec().name.clone();
                let is_taken = self.exists(&Handle::Name(name.clone())).await?;
                Err(if is_taken { Error::NameTaken(name) } else { failure })
            }
        }
    }

    async fn start(&self, id: &ContainerId) -> Result<()> {
        let by_api = self.lookup.change(Method::POST, &format!("/containers/{id}/start"), deadline::MAKE).await;
        self.lookup.note_changed(id);
        if by_api? {
            return Ok(());
        }
        let words = args::on("start", [id.as_str()]);
        let started = self.client.query("start", words, deadline::MAKE).await;
        self.lookup.note_changed(id);
        match started {
            Ok(_) => Ok(()),
            Err(failure) => match self.inspect(&id.into()).await {
                Ok(it) if it.status == ContainerStatus::Paused => {
                    self.on_container("unpause", args::on("unpause", [id.as_str()]), id, deadline::MAKE).await
                }
                _ => match self.taken_port(id).await {
                    Some(port) => Err(Error::PortTaken(port)),
                    None => Err(self.diagnose(id, failure).await),
                },
            },
        }
    }

    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        let words = args::stop(id, grace);
        self.on_container("stop", words, id, deadline::REMOVE + grace).await
    }

    async fn inspect(&self, handle: &Handle) -> Result<Container> {
        self.lookup.inspect_container(handle).await
    }

    async fn list(&self, filter: &LabelFilter) -> Result<Vec<Container>> {
        self.lookup.list_containers(filter).await
    }

    async fn list_recent(&self, filter: &LabelFilter) -> Result<Vec<Arc<Container>>> {
        self.lookup.list_recent_containers(filter).await
    }

    async fn usage(&self, id: &ContainerId) -> Result<Option<ContainerUsage>> {
        if !self.client.is_local() {
            return Ok(None); // the processes are on another machine
        }
        let Some(pid) = self.inspect(&id.into()).await?.pid else { return Ok(None) };
        let (used, written) =
            tokio::join!(cgroup::used(pid, id.as_str(), &self.cpu_samples), self.lookup.written_bytes(id));
        let Some(used) = used else { return Ok(None) };
        // Counting the written bytes may take too long; the other values are reported regardless.
        let disk_bytes = written.ok().flatten();
        let cgroup::CgroupUsage { memory_bytes, pids, cpu_percent, cpu_seconds } = used;
        Ok(Some(ContainerUsage { memory_bytes, pids, cpu_percent, disk_bytes, cpu_seconds: Some(cpu_seconds) }))
    }

    async fn remove(&self, id: &ContainerId) -> Result<RemovalOutcome> {
        let path = format!("/containers/{id}?force=true&v=true");
        let by_api = self.lookup.change(Method::DELETE, &path, deadline::REMOVE).await;
        self.lookup.note_changed(id);
        if by_api? {
            return Ok(RemovalOutcome::Now);
        }
        let removed = self.client.run("remove", args::remove(self.dialect, id), deadline::REMOVE).await?;
        self.lookup.note_changed(id);
        // Both engines' `rm --force` exits with 0 for a missing container, and prints the ids of those that it removed.
        let now = read::ids(&removed.stdout.bytes()).iter().any(|it| it == id.as_str());
        match now {
            true if removed.ok() => Ok(RemovalOutcome::Now),
            _ if self.stays(id).await? => Err(self.client.failed("remove", &removed)),
            true => Ok(RemovalOutcome::Now),
            false => Ok(RemovalOutcome::AlreadyGone),
        }
    }

    async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput> {
        program::exec::exec(self, id, exec).await
    }

    async fn link(&self, id: &ContainerId, socket: Option<SocketAt>, settings: LinkSettings) -> Result<Link> {
        Ok(program::link::link(self, id, socket, settings))
    }

    async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
        let words = args::upload(self.dialect, id, at);
        match self.client.feed_swept("upload", words, Stdin::File(tar), deadline::COPY).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(self.diagnose(id, failure).await),
        }
    }

    async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()> {
        match self.client.store("download", args::download(id, path), into, max_bytes, deadline::COPY).await {
            Err(failure @ Error::Engine { .. }) => Err(self.diagnose(id, failure).await),
            other => other,
        }
    }

    async fn export(&self, id: &ContainerId, into: File, max_bytes: u64) -> Result<()> {
        self.client.store("export", args::on("export", [id.as_str()]), into, max_bytes, deadline::COPY).await
    }
}

/// Facts about an engine on this machine that its command line depends on.
fn local_facts(dialect: Dialect) -> EngineFacts {
    let selinux = std::fs::read("/sys/fs/selinux/enforce").is_ok_and(|it| it.starts_with(b"1"));
    let rootless = match dialect {
        Dialect::Docker => false,
        Dialect::Podman => !rustix::process::geteuid().is_root(),
    };
    let user_network = ["slirp4netns", "pasta"].into_iter().find(|it| find_program(it).is_ok());
    let pauses = !rootless || std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let bounds = (dialect == Dialect::Podman).then(|| conf::Machine::inspect().bounds()).flatten();
    EngineFacts { rootless, selinux, pauses, bounds, user_network, host_gateway: None }
}

/// The same for an engine on another machine. This machine says nothing about that one, so everything is assumed to be
/// supported; the engine refuses what is not.
fn remote_facts(dialect: Dialect, endpoint: &str) -> EngineFacts {
    let destination = SshDestination::parse(dialect.kind(), endpoint).ok();
    let rootless = dialect == Dialect::Podman && destination.is_some_and(|it| it.is_rootless());
    let user_network = Some("slirp4netns");
    EngineFacts { rootless, selinux: false, pauses: true, bounds: None, user_network, host_gateway: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_runtime::{CreateSpec, Policy, admit};
    use coracle_types::{ContainerName, ImageId, ImageRef};

    #[tokio::test(start_paused = true)]
    async fn a_creation_that_takes_too_long_does_not_say_that_its_name_is_taken() {
        let id = "a".repeat(64);
        let script = format!("case \"$*\" in *create*) sleep 600 ;; *) echo {id} ;; esac");
        let (engine, _temp) = scripted::docker(&script);
        let spec = CreateSpec::new(ContainerName::parse("web").unwrap(), ImageRef::parse("x:1").unwrap());
        let image = ImageId::parse(format!("sha256:{}", "b".repeat(64))).unwrap();
        let admitted = admit(spec, &Policy::everything()).unwrap();
        let failed = engine.create(&admitted.with_image(image, NetworkAttachment::EngineDefault)).await;
        assert!(matches!(failed, Err(Error::TimedOut { verb: "create", .. })), "{failed:?}");
    }
}
