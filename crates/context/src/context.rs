//! The context of an operation.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use coracle_engine_program::EngineProgram;
use coracle_lifecycle::{Links, Record, SessionContainers, SlotObserver, Store};
use coracle_runtime::{ContainerRuntime, Policy};
use coracle_types::{ContainerName, EngineKind, Input, ProcessId};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, CrossSession, Engine, Toolset};
use crate::engines::{Choice, Engines};
use crate::failure::{Failure, HintReader};
use crate::host::Host;
use crate::printed_keys::PrintedKeys;
use crate::progress::Progress;
use crate::proxies::Proxies;
use crate::records::Records;
use crate::saving_steps::SavingSteps;
use crate::state::StateDir;
use crate::warning::Warning;
use crate::{event_log, policy};

/// Everything around a call. Cheap to clone: calls of a process share all large parts.
#[derive(Clone, Debug)]
pub struct Context {
    /// The user's configuration.
    pub config: Arc<Config>,
    /// The source of the configuration.
    pub settings: Arc<ConfigSource>,
    /// The host we were started on.
    pub host: Arc<Host>,
    /// The current call.
    pub call: CallContext,
    records: Arc<Records>,
    engines: Arc<Engines>,
    printed_keys: Arc<PrintedKeys>,
    proxies: Arc<Proxies>,
    steps: Arc<SavingSteps>,
}

/// The file of the configuration.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    /// The path of the configuration file, whether it exists or not.
    pub file: PathBuf,
    /// Why it cannot be used. The configuration then contains the defaults, and only diagnostic operations run.
    pub fault: Option<Failure>,
}

/// A call, its session and its listeners.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The session that it belongs to.
    pub session: ContainerName,
    /// The session's name was generated, so it ends with its connection.
    pub is_anonymous: bool,
    /// The way it came in.
    pub frontend: Frontend,
    /// Fires when the caller cancels.
    pub cancel: CancellationToken,
    /// Receives events of the call while it runs.
    pub progress: Progress,
    /// A path outside the allowed directories that the user at the terminal has allowed for this copy.
    consented: Option<Arc<PathBuf>>,
    /// The user's standard input, for one command.
    input: Arc<Mutex<Option<Input>>>,
    /// Warnings that a successful call reports with its response.
    warnings: Arc<Mutex<Vec<Warning>>>,
    /// The containers that the call uses.
    used: Arc<Mutex<Vec<Record>>>,
}

/// The way a call came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frontend {
    /// `coracle call`.
    Call,
    /// The command line: the user acts.
    Cli,
    /// `coracle mcp`.
    Mcp,
    /// `coracle serve`: a program acts.
    Serve,
    /// `coracle ui`: the user acts, in a browser.
    Ui,
}

impl Frontend {
    /// Whether the user acts, and not an agent or a program.
    #[must_use]
    pub fn is_of_person(self) -> bool {
        matches!(self, Self::Cli | Self::Ui)
    }
}

/// Options of every frontend.
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
    /// `--settings`: an object with keys of the configuration, over those of the file.
    pub settings: Option<String>,
    /// `--toolsets`
    pub toolsets: Option<Vec<Toolset>>,
}

impl CallContext {
    fn new(named: Option<ContainerName>, frontend: Frontend) -> Self {
        let (cancel, progress, is_anonymous) = (CancellationToken::new(), Progress::none(), named.is_none());
        let session = named.unwrap_or_else(|| anonymous(frontend));
        Self {
            session,
            is_anonymous,
            frontend,
            cancel,
            progress,
            consented: None,
            input: Arc::default(),
            warnings: Arc::default(),
            used: Arc::default(),
        }
    }
}

impl Context {
    /// Reads the configuration and creates the state directory. Contacts no engine.
    ///
    /// # Errors
    /// `invalid_name` for an invalid session name. An invalid configuration is stored as the fault of its
    /// [`ConfigSource`].
    pub fn open(host: Host, options: &Options, frontend: Frontend) -> Result<Self, Failure> {
        let call = CallContext::new(named_session(&host, options, frontend)?, frontend);
        let (mut config, fault) = match Config::load(options.config.as_deref(), options.settings.as_deref(), &host) {
            Ok(config) => (config, None),
            Err(fault) => (Config::default(), Some(fault)),
        };
        config.engine = options.engine.unwrap_or(config.engine);
        let settings = ConfigSource { file: Config::location(options.config.as_deref(), &host), fault };
        let state = StateDir::open(options.state_dir.as_deref(), &config, &host).map(Arc::new).map_err(Arc::new);
        let records = Arc::new(Records::new(&config, state));
        let (config, host) = (Arc::new(config), Arc::new(host));
        let engines = Arc::new(Engines::new(config.clone(), host.clone(), records.clone()));
        let (printed_keys, proxies, steps) = Default::default();
        Ok(Self { config, settings: settings.into(), host, call, records, engines, printed_keys, proxies, steps })
    }

    /// The proxies of containers that this process runs.
    pub fn proxies(&self) -> &Proxies {
        &self.proxies
    }

    /// The checkpoints that this process saves after calls.
    pub fn steps(&self) -> &SavingSteps {
        &self.steps
    }

    /// The API keys that programs have printed.
    pub fn printed_keys(&self) -> &PrintedKeys {
        &self.printed_keys
    }

    /// Replaces the engine, for tests.
    #[must_use]
    #[cfg(target_os = "linux")]
    pub fn with_fake(self, fake: coracle_runtime::FakeRuntime) -> Self {
        let config = Config { engine: Engine::Fake, ..(*self.config).clone() };
        let engines = self.engines.with_fake(fake);
        Self { config: Arc::new(config), engines: Arc::new(engines), ..self }
    }

    /// Returns the same process for one call.
    #[must_use]
    pub fn for_call(&self, cancel: CancellationToken, progress: Progress) -> Self {
        let call = CallContext { cancel, progress, ..self.call.clone() };
        Self { call, ..self.clone() }
    }

    /// Returns the same process for work that outlives the call: it cannot be cancelled, and its events have no
    /// listener.
    #[must_use]
    pub fn outliving_the_call(&self) -> Self {
        self.for_call(CancellationToken::new(), Progress::none())
    }

    /// Returns the same process for one more client: a session of its own, cancelled with the process.
    #[must_use]
    pub fn for_session(&self) -> Self {
        let cancel = self.call.cancel.child_token();
        let call = CallContext::new(None, self.call.frontend);
        Self { call: CallContext { cancel, progress: self.call.progress.clone(), ..call }, ..self.clone() }
    }

    /// Returns the same process in another session, for a user who inspects it.
    #[must_use]
    pub fn in_session(&self, session: ContainerName) -> Self {
        Self { call: CallContext { session, is_anonymous: false, ..self.call.clone() }, ..self.clone() }
    }

    /// Returns Coracle's state directory.
    ///
    /// # Errors
    /// `config_invalid` if other users can access it.
    pub fn state(&self) -> Result<&StateDir, Failure> {
        self.records.state()
    }

    /// Returns the user's policy.
    ///
    /// # Errors
    /// Those of [`Context::state`].
    pub fn policy(&self) -> Result<Policy, Failure> {
        let mut policy = policy::from_config(&self.config, &self.host, self.state()?);
        policy.allow_roots.extend(self.call.consented.iter().map(|it| it.to_path_buf()));
        Ok(policy)
    }

    /// Returns the same process for one copy of a path that the user has allowed.
    #[must_use]
    pub fn with_consent(mut self, path: PathBuf) -> Self {
        self.call.consented = Some(Arc::new(path));
        self
    }

    /// Whether the user has allowed this call to leave the allowed directories.
    pub(crate) fn has_consent(&self) -> bool {
        self.call.consented.is_some()
    }

    /// Refuses operations other than diagnostics while the configuration is invalid.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn configured(&self) -> Result<(), Failure> {
        self.settings.fault.clone().map_or(Ok(()), Err)
    }

    /// Returns the reader of this process's answers.
    #[must_use]
    pub fn reader(&self) -> HintReader {
        match self.call.frontend {
            Frontend::Cli | Frontend::Ui => HintReader::Person(self.settings.file.clone()),
            Frontend::Call | Frontend::Mcp | Frontend::Serve => HintReader::Agent,
        }
    }

    /// Returns what this session may do to containers of others. The user may do everything.
    #[must_use]
    pub fn cross_session(&self) -> CrossSession {
        if self.call.frontend.is_of_person() { CrossSession::All } else { self.config.security.cross_session }
    }

    /// Returns the process whose end ends this session. A session with a chosen name ends when it has not been used for
    /// long.
    #[must_use]
    pub fn owner(&self) -> Option<ProcessId> {
        self.call.is_anonymous.then(ProcessId::current)
    }

    /// Whether a warning that is given once per session is new. A session with a chosen name is the same in every
    /// process.
    pub fn is_first_report(&self, what: &str) -> bool {
        let key = format!("{}-{what}", self.call.session);
        if self.call.is_anonymous {
            return self.engines.is_first_report(key);
        }
        let Ok(dir) = self.state().map(StateDir::reported) else { return true };
        let recorded = std::fs::create_dir_all(&dir).and_then(|()| std::fs::File::create_new(dir.join(key)));
        !recorded.is_err_and(|err| err.kind() == std::io::ErrorKind::AlreadyExists)
    }

    /// The engines of this process.
    pub fn engines(&self) -> &Engines {
        &self.engines
    }

    /// The engines, for work that outlives the call.
    pub fn shared_engines(&self) -> Arc<Engines> {
        self.engines.clone()
    }

    /// Returns the engine that creates containers: that of a cached verdict of preflight, else the first that answers.
    /// It does not change in this process.
    ///
    /// # Errors
    /// `engine_unavailable`, with the reason for each engine.
    pub async fn runtime(&self) -> Result<Arc<dyn ContainerRuntime>, Failure> {
        self.engines.chosen().await
    }

    /// Detects engines again, and returns which one was chosen, and why others were skipped.
    ///
    /// # Errors
    /// `config_invalid` for an engine that the configuration does not allow.
    pub async fn detect(&self) -> Result<Choice, Failure> {
        self.engines.detect().await
    }

    /// Returns the engine in a record, without contacting it.
    ///
    /// # Errors
    /// `engine_unavailable` if its program is not installed.
    pub fn runtime_for(&self, kind: EngineKind, endpoint: &str) -> Result<Arc<dyn ContainerRuntime>, Failure> {
        self.engines.recorded(kind, endpoint)
    }

    /// Returns the program of the engine in a record, for a user's terminal.
    pub fn terminal_of(&self, kind: EngineKind, endpoint: &str) -> Result<EngineProgram, Failure> {
        self.engines.connect(kind, endpoint).map(|(_, program)| program)
    }

    /// Returns the same process, whose standard input is passed to its command.
    #[must_use]
    pub fn with_input(mut self, input: Input) -> Self {
        self.call.input = Arc::new(Mutex::new(Some(input)));
        self
    }

    /// Takes the standard input for a command. Only the first caller gets it.
    pub fn take_input(&self) -> Option<Input> {
        self.call.input.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Adds warnings to the response of the call, if it succeeds.
    pub fn warn(&self, warnings: impl IntoIterator<Item = Warning>) {
        self.call.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings);
    }

    /// Returns the warnings so far.
    pub fn warnings(&self) -> Vec<Warning> {
        self.call.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the warnings so far.
    pub fn take_warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut self.call.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that the call uses a container.
    pub fn use_container(&self, record: &Record) {
        let mut used = self.call.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.iter().all(|it| it.record_id != record.record_id) {
            used.push(record.clone());
        }
    }

    /// Takes the containers that the call has used.
    pub fn take_used(&self) -> Vec<Record> {
        std::mem::take(&mut self.call.used.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the same call with its own lists of warnings and of used containers.
    #[must_use]
    pub fn with_own_warnings(&self) -> Self {
        let call = CallContext { warnings: Arc::default(), used: Arc::default(), ..self.call.clone() };
        Self { call, ..self.clone() }
    }

    /// Connections to the guests of containers.
    pub fn links(&self) -> &Links {
        self.records.links()
    }

    /// Opens Coracle's records.
    ///
    /// # Errors
    /// `config_invalid` if the state directory cannot be used.
    pub fn store(&self) -> Result<Store, Failure> {
        self.records.store()
    }

    /// For a process that serves a session: Docker's network for containers stays from one container to the next, until
    /// `release_network`.
    pub fn keep_network(&self) {
        self.records.keep_network();
    }

    /// Opens the containers of sessions.
    ///
    /// # Errors
    /// `config_invalid` if the state directory cannot be used.
    pub fn session_containers(&self) -> Result<SessionContainers, Failure> {
        self.records.session_containers()
    }

    /// Observes events of the session's containers.
    pub fn slot_observer(&self) -> Box<SlotObserver<'static>> {
        event_log::slot_observer(self.state().ok(), &self.call.session)
    }

    /// Runs `work` until the caller cancels. Only for work that may be dropped at any point.
    ///
    /// # Errors
    /// `cancelled`, or those of `work`.
    pub async fn unless_cancelled<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match self.call.cancel.run_until_cancelled(work).await {
            Some(done) => done,
            None => Err(Failure::cancelled()),
        }
    }

    /// A process with all its files below one directory, and a fake engine.
    #[cfg(all(target_os = "linux", any(test, feature = "testing")))]
    #[expect(clippy::unwrap_used, reason = "only tests call it")]
    pub fn for_tests(dir: &std::path::Path) -> Self {
        let context = Self::open(Host::below(dir), &Options::default(), Frontend::Call).unwrap();
        context.with_fake(coracle_runtime::FakeRuntime::new())
    }
}

/// Generates a name for a session without one.
fn anonymous(frontend: Frontend) -> ContainerName {
    let prefix = if frontend == Frontend::Serve { "serve" } else { "mcp" };
    let name = format!("{prefix}-{}", coracle_types::random_hex::<8>());
    ContainerName::parse(&name).expect("hex digits stand in a name")
}

/// Returns the name of the session. A connection of an agent or a program without a name is its own session.
fn named_session(host: &Host, options: &Options, frontend: Frontend) -> Result<Option<ContainerName>, Failure> {
    let named = options.session.clone().or_else(|| host.session.clone());
    let name = match (named, frontend) {
        (Some(name), _) => name,
        (None, Frontend::Mcp | Frontend::Serve) => return Ok(None),
        (None, _) => "default".to_owned(),
    };
    ContainerName::parse(&name).map(Some).map_err(|err| {
        let failure = Failure::from(err);
        let grammar = failure.hint.clone().unwrap_or_default();
        failure
            .with_message(format!("`{}` is not a session name", name.escape_debug()))
            .detail("field", "session")
            .hint(grammar)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Context, Frontend, Options, named_session};
    use crate::config::CrossSession;
    use crate::host::Host;

    #[test]
    fn a_session_is_named_by_option_environment_or_connection() {
        let host = Host::below(Path::new("/h"));
        let named = |session: Option<&str>| Options { session: session.map(Into::into), ..Options::default() };
        let name = |host: &Host, session: Option<&str>, frontend| {
            named_session(host, &named(session), frontend).map(|name| name.map(|it| it.to_string()))
        };
        assert_eq!(name(&host, None, Frontend::Call).unwrap().as_deref(), Some("default"));
        assert_eq!(name(&host, Some("a"), Frontend::Mcp).unwrap().as_deref(), Some("a"));
        assert_eq!(name(&host, None, Frontend::Mcp).unwrap(), None);
        assert_eq!(name(&host, None, Frontend::Serve).unwrap(), None);
        assert_eq!(name(&host, Some("../x"), Frontend::Call).unwrap_err().code.word(), "invalid_name");
        let host = Host { session: Some("env".into()), ..host };
        assert_eq!(name(&host, None, Frontend::Serve).unwrap().as_deref(), Some("env"));
    }

    #[test]
    fn clients_of_one_process_are_separate_and_end_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::open(Host::below(dir.path()), &Options::default(), Frontend::Mcp).unwrap();
        let (one, two) = (cx.for_session(), cx.for_session());
        assert!(one.call.session != two.call.session && one.call.session != cx.call.session);
        one.call.cancel.cancel();
        assert!(!two.call.cancel.is_cancelled() && !cx.call.cancel.is_cancelled());
        cx.call.cancel.cancel();
        assert!(two.call.cancel.is_cancelled());
    }

    #[tokio::test]
    async fn the_fake_is_shared_by_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        assert_eq!(cx.runtime().await.unwrap().kind().as_str(), "fake");
        assert_eq!(cx.cross_session(), CrossSession::Use);
        let mut person = cx;
        person.call.frontend = Frontend::Cli;
        assert_eq!(person.cross_session(), CrossSession::All);
    }
}
