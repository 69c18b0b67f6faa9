//! Apple's `container` as an engine, through its own program. It runs each container in a virtual machine, on macOS.
//!
//! ```no_run
//! use coracle_apple::AppleRuntime;
//! use coracle_engine_program::EngineSettings;
//! use coracle_runtime::ContainerRuntime as _;
//!
//! # async fn example(settings: &EngineSettings) -> coracle_types::Result<()> {
//! let engine = AppleRuntime::connect(settings)?;
//! let version = engine.info().await?.version;
//! # drop(version);
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant:** a failure is explained by the state of the service, since the exit status of its program means nothing.

#![warn(missing_docs)]

mod args;
mod containers;
mod files;
mod images;
mod networks;
mod query;
mod read;

use std::ffi::OsString;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_engine_program as program;
use coracle_engine_program::{
    EngineArgs, EngineProgram, EngineSettings, LOG_LINES, ProgramOptions, RunsCommands, deadline,
};
use coracle_runtime::stack_model::StackModel;
use coracle_runtime::{
    Container, ContainerRuntime, ContainerUsage, Endpoint, EngineInfo, Health, LabelFilter, Placed, RemovalOutcome,
    StackUp, Stacks,
};
use coracle_types::{
    Capability, ContainerId, ContainerPath, EngineKind, Error, Excerpt, Exec, ExecOutput, Handle, Ids, ProjectName,
    Result,
};

use self::query::is_up;
use self::{args as words, read as answers};

/// The file with the version of the system.
const SYSTEM: &str = "/System/Library/CoreServices/SystemVersion.plist";

/// Apple's engine behind its program.
#[derive(Clone, Debug)]
pub struct AppleRuntime {
    program: EngineProgram,
}

impl AppleRuntime {
    /// Finds the program. Asks the engine nothing.
    ///
    /// # Errors
    /// [`Error::NotInstalled`].
    pub fn connect(settings: &EngineSettings) -> Result<Self> {
        let options = ProgramOptions { endpoint: "local".into(), prefix: Vec::new(), env: Vec::new(), forward: None };
        Ok(Self { program: EngineProgram::find(EngineKind::Container, settings, options)? })
    }

    /// The reason for a failed call on a container: the container is gone, or the engine's error.
    async fn diagnose(&self, id: &ContainerId, failure: Error) -> Error {
        match containers::ids_of(&self.program, &id.into()).await {
            Ok(ids) if ids.is_empty() => Error::NoSuchContainer(id.to_string()),
            Ok(_) => failure,
            Err(unavailable) => unavailable,
        }
    }
}

impl RunsCommands for AppleRuntime {
    fn program(&self) -> &EngineProgram {
        &self.program
    }

    /// Its containers run on a kernel of their own.
    fn shares_sockets(&self) -> bool {
        false
    }

    fn exec_words(&self, id: &ContainerId, exec: &Exec, mark: &str) -> (EngineArgs, Vec<(String, OsString)>) {
        words::exec(id, exec, mark)
    }

    fn constant_program(&self, id: &ContainerId, user: Ids, program: &str) -> EngineArgs {
        words::constant_program(id, user, program)
    }

    fn connect_words(&self, id: &ContainerId) -> EngineArgs {
        words::connect(id)
    }
}

#[async_trait]
impl ContainerRuntime for AppleRuntime {
    fn kind(&self) -> EngineKind {
        EngineKind::Container
    }

    /// Its service runs as the user.
    fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.program.endpoint().to_owned(), rootless: true, single_user: false }
    }

    async fn info(&self) -> Result<EngineInfo> {
        info(&self.program).await
    }

    async fn create(&self, spec: &Placed) -> Result<ContainerId> {
        let words = containers::create(&self.program, spec).await?;
        match self.program.query("create", words, deadline::MAKE).await {
            Ok(ended) => answers::created(&ended.stdout.bytes()),
            Err(failure) => {
                let name = spec.spec().name.clone();
                let is_taken = !containers::ids_of(&self.program, &Handle::Name(name.clone())).await?.is_empty();
                Err(if is_taken { Error::NameTaken(name) } else { failure })
            }
        }
    }

    async fn start(&self, id: &ContainerId) -> Result<()> {
        match self.program.query("start", words::start(id), deadline::MAKE).await {
            Ok(_) => Ok(()),
            Err(failure) => match self.inspect(&id.into()).await {
                // It refuses to start what runs already.
                Ok(it) if it.running() => Ok(()),
                _ => Err(self.diagnose(id, failure).await),
            },
        }
    }

    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        containers::stop(&self.program, id, grace).await
    }

    async fn inspect(&self, handle: &Handle) -> Result<Container> {
        containers::inspect(&self.program, handle).await
    }

    async fn list(&self, filter: &LabelFilter) -> Result<Vec<Container>> {
        containers::list(&self.program, filter).await
    }

    async fn list_recent(&self, filter: &LabelFilter) -> Result<Vec<Arc<Container>>> {
        Ok(self.list(filter).await?.into_iter().map(Arc::new).collect())
    }

    async fn usage(&self, id: &ContainerId) -> Result<Option<ContainerUsage>> {
        containers::usage(&self.program, id).await
    }

    async fn remove(&self, id: &ContainerId) -> Result<RemovalOutcome> {
        containers::remove(&self.program, id).await
    }

    async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput> {
        program::exec::exec(self, id, exec).await
    }

    async fn link(&self, id: &ContainerId, socket: Option<SocketAt>, settings: LinkSettings) -> Result<Link> {
        Ok(program::link::link(self, id, socket, settings))
    }

    async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
        match files::upload(&self.program, id, at, tar).await {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.diagnose(id, failure).await),
        }
    }

    async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()> {
        match files::download(&self.program, id, path, into, max_bytes).await {
            Err(failure @ Error::Engine { .. }) => Err(self.diagnose(id, failure).await),
            other => other,
        }
    }
}

const NO_COMPOSE: Error = Error::Unsupported { engine: EngineKind::Container, capability: Capability::Compose };

#[async_trait]
impl Stacks for AppleRuntime {
    async fn compose_version(&self) -> Option<String> {
        None
    }

    async fn check_stack(&self, _model: &StackModel) -> Result<()> {
        Err(NO_COMPOSE)
    }

    async fn stack_up(&self, _stack: &StackUp) -> Result<Option<Excerpt>> {
        Err(NO_COMPOSE)
    }

    async fn stack_down(&self, _project: &ProjectName) -> Result<()> {
        Err(NO_COMPOSE)
    }

    async fn logs(&self, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>> {
        let ended = self.program.query("logs", words::logs(id, LOG_LINES), deadline::READ).await?;
        let all = [ended.stdout.bytes(), ended.stderr.bytes()].concat();
        Ok(all[all.len().saturating_sub(max_bytes)..].to_vec())
    }

    async fn check_health(&self, id: &ContainerId) -> Result<Option<Health>> {
        Ok(self.inspect(&id.into()).await?.health)
    }
}

/// Version and state of the engine.
async fn info(program: &EngineProgram) -> Result<coracle_runtime::EngineInfo> {
    if let Ok(plist) = std::fs::read_to_string(SYSTEM) {
        answers::system(&plist)?;
    }
    let output = program.run("system version", words::system("version"), deadline::READ).await?;
    let output = output.stdout.bytes();
    let version = answers::version(&output)?;
    is_up(program).await?;
    Ok(answers::info(version, program.home()))
}
