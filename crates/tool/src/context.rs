//! What an operation is given.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use coracle_lifecycle::{Links, RoomTag, RoomTerms, Rooms, Store};
use coracle_provision::env;
use coracle_runtime::link::{LinkSettings, wire::Keep};
use coracle_runtime::{
    CliRuntime, ContainerName, ContainerRuntime, EngineKind, FakeRuntime, Input, Policy, ProcessId, Redactor,
};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, CrossSession, Engine, Exec, Toolset};
use crate::engines::{self, Choice, Engines};
use crate::failure::{Failure, Reader};
use crate::host::Host;
use crate::policy;
use crate::progress::Progress;
use crate::sandbox::Homes;
use crate::session_tools::SessionTools;
use crate::state::StateDir;

/// Everything around a call. Cheap to clone: all that is large is shared by the calls of a process.
#[derive(Clone, Debug)]
pub struct Context {
    /// What the person decided.
    pub config: Arc<Config>,
    /// Why the configuration cannot be used. `config` holds the defaults then, and only diagnoses are made.
    pub config_fault: Option<Arc<Failure>>,
    /// The file that the configuration is read from, whether it is there or not.
    pub settings_file: Arc<PathBuf>,
    /// The machine we were started on.
    pub host: Arc<Host>,
    /// Whose call this is (containers.md 2.10).
    pub session: ContainerName,
    /// The way it came in.
    pub mouth: Mouth,
    /// Fires when the caller withdraws.
    pub cancel: CancellationToken,
    /// Gets news of the call while it runs.
    pub progress: Progress,
    /// Tools that the agent gets.
    pub toolsets: Arc<[Toolset]>,
    /// A path outside the allowed directories that the person at the terminal lets this one copy have.
    consented: Option<Arc<PathBuf>>,
    state: Result<Arc<StateDir>, Arc<Failure>>,
    store: Arc<OnceLock<Store>>,
    links: Links,
    rooms: Arc<OnceLock<Rooms>>,
    homes: Homes,
    session_tools: Arc<OnceLock<SessionTools>>,
    own_secrets: Arc<OnceLock<Redactor>>,
    /// What the person's own input is, for one command.
    input: Arc<Mutex<Option<Input>>>,
    engines: Arc<Engines>,
}

/// The way a call came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mouth {
    /// `coracle call`.
    Call,
    /// The command line: the person acts.
    Cli,
    /// `coracle mcp`.
    Mcp,
}

/// Options that every mouth takes.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--state-dir`
    pub state_dir: Option<PathBuf>,
    /// `--engine`
    pub engine: Option<Engine>,
    /// `--session`
    pub session: Option<String>,
    /// `--toolsets`
    pub toolsets: Option<Vec<Toolset>>,
}

impl Context {
    /// Reads the configuration and makes the state directory. Asks no engine.
    ///
    /// # Errors
    /// `invalid_name` for a session that has none. A bad configuration is kept as `config_fault`.
    pub fn open(host: Host, options: &Options, mouth: Mouth) -> Result<Self, Failure> {
        let session = session(&host, options, mouth)?;
        let (mut config, fault) = match Config::load(options.config.as_deref(), &host) {
            Ok(config) => (config, None),
            Err(fault) => (Config::default(), Some(Arc::new(fault))),
        };
        config.engine = options.engine.unwrap_or(config.engine);
        let Exec { keep_bytes, keep_total, keep_for, .. } = &config.exec;
        let keep = Keep { bytes: keep_bytes.0, total: keep_total.0, for_s: keep_for.0.as_secs() };
        let toolsets = options.toolsets.as_ref().unwrap_or(&config.workspace.toolsets).as_slice().into();
        let state = StateDir::open(options.state_dir.as_deref(), &config, &host).map(Arc::new).map_err(Arc::new);
        Ok(Self {
            config: Arc::new(config),
            config_fault: fault,
            settings_file: Arc::new(Config::location(options.config.as_deref(), &host)),
            host: Arc::new(host),
            session,
            mouth,
            cancel: CancellationToken::new(),
            progress: Progress::none(),
            toolsets,
            consented: None,
            state,
            store: Arc::default(),
            rooms: Arc::default(),
            homes: Homes::default(),
            session_tools: Arc::default(),
            own_secrets: Arc::default(),
            input: Arc::default(),
            links: Links::new(LinkSettings { keep }),
            engines: Arc::default(),
        })
    }

    /// The same process with an engine that a test has arranged.
    #[must_use]
    pub fn with_fake(self, fake: FakeRuntime) -> Self {
        let config = Config { engine: Engine::Fake, ..(*self.config).clone() };
        Self { config: Arc::new(config), engines: Arc::new(Engines::with_fake(fake)), ..self }
    }

    /// The same process, for one call.
    #[must_use]
    pub fn for_call(&self, cancel: CancellationToken, progress: Progress) -> Self {
        Self { cancel, progress, ..self.clone() }
    }

    /// The same process, for what outlives the call: withdrawn by nobody, heard by nobody, and without the sandboxes that
    /// would hold it.
    #[must_use]
    pub(crate) fn for_home(&self) -> Self {
        Self { homes: Homes::default(), ..self.for_call(CancellationToken::new(), Progress::none()) }
    }

    /// The same process for one more client: a session of its own, withdrawn with the process.
    #[must_use]
    pub fn for_session(&self) -> Self {
        Self {
            session: anonymous(),
            cancel: self.cancel.child_token(),
            session_tools: Arc::default(),
            input: Arc::default(),
            ..self.clone()
        }
    }

    /// Our state directory.
    ///
    /// # Errors
    /// `config_invalid` when it is not the person's alone.
    pub fn state(&self) -> Result<&StateDir, Failure> {
        self.state.as_deref().map_err(|fault| Failure::clone(fault))
    }

    /// What the person allows.
    ///
    /// # Errors
    /// Those of [`Context::state`].
    pub fn policy(&self) -> Result<Policy, Failure> {
        let mut policy = policy::from_config(&self.config, &self.host, self.state()?);
        policy.allow_roots.extend(self.consented.iter().map(|it| it.to_path_buf()));
        Ok(policy)
    }

    /// The same process, for one copy of a path that the person has let it have.
    #[must_use]
    pub(crate) fn with_consent(self, path: PathBuf) -> Self {
        Self { consented: Some(Arc::new(path)), ..self }
    }

    /// Whether the person has let this call go beyond the allowed directories.
    pub(crate) fn has_consent(&self) -> bool {
        self.consented.is_some()
    }

    /// Who reads the answers of this process.
    #[must_use]
    pub(crate) fn reader(&self) -> Reader {
        match self.mouth {
            Mouth::Cli => Reader::Person(self.settings_file.to_path_buf()),
            Mouth::Call | Mouth::Mcp => Reader::Agent,
        }
    }

    /// What this session may do to containers of others. The person may do everything.
    #[must_use]
    pub fn cross_session(&self) -> CrossSession {
        if self.mouth == Mouth::Cli { CrossSession::All } else { self.config.security.cross_session }
    }

    /// The process whose end is the end of this session. Sessions of the command line end by not being used.
    #[must_use]
    pub fn owner(&self) -> Option<ProcessId> {
        (self.mouth == Mouth::Mcp).then(ProcessId::current)
    }

    /// The engine that makes containers: that of a kept verdict of preflight, else the first that answers. It stays the
    /// same for this process.
    ///
    /// # Errors
    /// `engine_unavailable`, which says of each engine why it was not taken.
    pub async fn runtime(&self) -> Result<Arc<dyn ContainerRuntime>, Failure> {
        let kept = || crate::preflight::kept_engine(self);
        self.engines.chosen(kept, (&self.config, &self.host, self.state()?)).await
    }

    /// A place among the commands that this process runs at once.
    ///
    /// # Errors
    /// `busy` when none came free for a while.
    pub(crate) async fn place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Failure> {
        self.engines.place(&self.config).await
    }

    /// Held while preflight looks, so that calls which begin together look once.
    pub(crate) async fn look_alone(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.engines.look_alone().await
    }

    /// Looks for engines once more: what was chosen, and what was passed over and why.
    ///
    /// # Errors
    /// `config_invalid` for an engine that the configuration does not allow.
    pub async fn detect(&self) -> Result<Choice, Failure> {
        self.engines.detect(&self.config, &self.host, self.state()?).await
    }

    /// The engine that a record names, without asking it.
    ///
    /// # Errors
    /// `engine_unavailable` when its program is not installed.
    pub fn runtime_for(&self, kind: EngineKind, endpoint: &str) -> Result<Arc<dyn ContainerRuntime>, Failure> {
        self.engines.recorded(kind, endpoint, &self.config, &self.host, self.state()?)
    }

    /// The program of an engine that a record names, for a person's terminal.
    pub(crate) fn terminal_of(&self, kind: EngineKind, endpoint: &str) -> Result<CliRuntime, Failure> {
        engines::connect(kind, endpoint, &self.config, &self.host, self.state()?)
    }

    /// The same process, whose standard input is for the command that it runs.
    #[must_use]
    pub(crate) fn with_input(self, input: Input) -> Self {
        Self { input: Arc::new(Mutex::new(Some(input))), ..self }
    }

    /// Standard input, if it is for a command. Only the first gets it.
    pub(crate) fn take_input(&self) -> Option<Input> {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Connections to the guests of containers.
    pub(crate) fn links(&self) -> &Links {
        &self.links
    }

    /// Our records.
    ///
    /// # Errors
    /// `config_invalid` when the state directory cannot be used.
    pub fn store(&self) -> Result<Store, Failure> {
        if let Some(store) = self.store.get() {
            return Ok(store.clone());
        }
        let store = Store::open(self.state()?.root(), self.config.label_namespace.clone())?;
        Ok(self.store.get_or_init(|| store).clone())
    }

    /// Variables of this process with the names of secrets: what prints them is not written down.
    pub(crate) fn own_secrets(&self) -> &Redactor {
        self.own_secrets.get_or_init(|| {
            let secrets = self.host.env.iter().filter(|(name, _)| !env::is_plain(name, "", std::iter::empty()));
            Redactor::new(secrets.map(|(name, value)| (name.clone(), value.clone())).collect())
        })
    }

    /// The containers of sessions.
    ///
    /// # Errors
    /// `config_invalid` when the state directory cannot be used.
    pub(crate) fn rooms(&self) -> Result<Rooms, Failure> {
        let store = self.store()?;
        let terms = RoomTerms {
            idle: self.config.workspace.idle.0,
            sandbox_idle: self.config.sandbox.idle.0,
            lifetime: self.config.workspace.lifetime.unless_zero().unwrap_or(Duration::MAX),
            sandbox_lifetime: self.config.sandbox.lifetime.unless_zero().unwrap_or(Duration::MAX),
            ..RoomTerms::default()
        };
        Ok(self.rooms.get_or_init(|| Rooms::new(store, self.links.clone(), terms)).clone())
    }

    /// The sandboxes that this process uses.
    pub(crate) fn homes(&self) -> &Homes {
        &self.homes
    }

    /// What the tools of the session work with. It has no container until one of them needs one.
    ///
    /// # Errors
    /// `config_invalid` when the state directory cannot be used.
    pub(crate) fn session_tools(&self) -> Result<SessionTools, Failure> {
        if let Some(tools) = self.session_tools.get() {
            return Ok(tools.clone());
        }
        let tools = SessionTools::new(self)?;
        Ok(self.session_tools.get_or_init(|| tools).clone())
    }

    /// `work`, unless the caller withdraws. For work that may be dropped at any point.
    ///
    /// # Errors
    /// `cancelled`, or those of `work`.
    pub async fn unless_cancelled<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match self.cancel.run_until_cancelled(work).await {
            Some(done) => done,
            None => Err(Failure::cancelled()),
        }
    }

    /// A process whose things all lie below one directory, with a fake engine.
    #[cfg(test)]
    pub(crate) fn for_tests(dir: &std::path::Path) -> Self {
        let context = Self::open(Host::below(dir), &Options::default(), Mouth::Call).unwrap();
        context.with_fake(FakeRuntime::new())
    }
}

#[async_trait]
impl coracle_lifecycle::Engines for Context {
    async fn of(&self, kind: EngineKind, endpoint: &str) -> coracle_lifecycle::Result<Arc<dyn ContainerRuntime>> {
        self.runtime_for(kind, endpoint).map_err(no_engine)
    }

    async fn preferred(&self) -> coracle_lifecycle::Result<Arc<dyn ContainerRuntime>> {
        self.runtime().await.map_err(no_engine)
    }

    fn heard(&self, runtime: Arc<dyn ContainerRuntime>, room: RoomTag<'_>) -> Arc<dyn ContainerRuntime> {
        crate::event_log::heard(self, runtime, room)
    }
}

/// Turned into the same failure again where the answer is made.
fn no_engine(failure: Failure) -> coracle_lifecycle::Error {
    coracle_lifecycle::Error::NoEngine(Box::new(failure))
}

/// A session that nobody named.
fn anonymous() -> ContainerName {
    let name = format!("mcp-{}", coracle_runtime::random_hex::<8>());
    ContainerName::parse(&name).expect("hex digits stand in a name")
}

/// One MCP connection is a session of its own, unless it is named.
fn session(host: &Host, options: &Options, mouth: Mouth) -> Result<ContainerName, Failure> {
    let named = options.session.clone().or_else(|| host.session.clone());
    let name = match (named, mouth) {
        (Some(name), _) => name,
        (None, Mouth::Mcp) => return Ok(anonymous()),
        (None, _) => "default".to_owned(),
    };
    ContainerName::parse(&name).map_err(|err| {
        let failure = Failure::from(err);
        let grammar = failure.hint.clone().unwrap_or_default();
        Failure { message: format!("`{}` is not a session name", name.escape_debug()), ..failure }
            .detail("field", "session")
            .hint(grammar)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Context, Mouth, Options, session};
    use crate::config::CrossSession;
    use crate::host::Host;

    #[test]
    fn a_session_is_named_by_option_environment_or_connection() {
        let host = Host::below(Path::new("/h"));
        let named = |session: Option<&str>| Options { session: session.map(Into::into), ..Options::default() };
        assert_eq!(session(&host, &named(None), Mouth::Call).unwrap().as_str(), "default");
        assert_eq!(session(&host, &named(Some("a")), Mouth::Mcp).unwrap().as_str(), "a");
        assert!(session(&host, &named(None), Mouth::Mcp).unwrap().as_str().starts_with("mcp-"));
        assert_eq!(session(&host, &named(Some("../x")), Mouth::Call).unwrap_err().code.word(), "invalid_name");
        let host = Host { session: Some("env".into()), ..host };
        assert_eq!(session(&host, &named(None), Mouth::Call).unwrap().as_str(), "env");
    }

    #[test]
    fn clients_of_one_process_are_told_apart_and_end_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::open(Host::below(dir.path()), &Options::default(), Mouth::Mcp).unwrap();
        let (one, two) = (cx.for_session(), cx.for_session());
        assert!(one.session != two.session && one.session != cx.session);
        one.cancel.cancel();
        assert!(!two.cancel.is_cancelled() && !cx.cancel.is_cancelled());
        cx.cancel.cancel();
        assert!(two.cancel.is_cancelled());
    }

    #[tokio::test]
    async fn the_fake_is_one_per_process() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        assert_eq!(cx.runtime().await.unwrap().kind().as_str(), "fake");
        assert_eq!(cx.cross_session(), CrossSession::Use);
        assert_eq!(Context { mouth: Mouth::Cli, ..cx }.cross_session(), CrossSession::All);
    }
}
