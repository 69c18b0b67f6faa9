//! What an operation is given.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use coracle_engine_program::EngineProgram;
use coracle_lifecycle::{Links, SessionContainers, SlotObserver, Store};
use coracle_runtime::{ContainerRuntime, Policy};
use coracle_types::{ContainerName, EngineKind, Input, ProcessId};
use tokio_util::sync::CancellationToken;

use crate::config::{Config, CrossSession, Engine, Toolset};
use crate::engines::{Choice, Engines};
use crate::failure::{Failure, HintReader};
use crate::host::Host;
use crate::printed_keys::PrintedKeys;
use crate::progress::Progress;
use crate::records::Records;
use crate::state::StateDir;
use crate::warning::Warning;
use crate::{event_log, policy};

/// Everything around a call. Cheap to clone: all that is large is shared by the calls of a process.
#[derive(Clone, Debug)]
pub struct Context {
    /// What the person decided.
    pub config: Arc<Config>,
    /// Where that comes from.
    pub settings: Arc<ConfigSource>,
    /// The machine we were started on.
    pub host: Arc<Host>,
    /// Whose call this is.
    pub call: CallContext,
    records: Arc<Records>,
    engines: Arc<Engines>,
    printed_keys: Arc<PrintedKeys>,
}

/// The file of the configuration.
#[derive(Clone, Debug)]
pub struct ConfigSource {
    /// The file that the configuration is read from, whether it is there or not.
    pub file: PathBuf,
    /// Why it cannot be used. The configuration holds the defaults then, and only diagnoses are made.
    pub fault: Option<Failure>,
}

/// Whose call it is, and who follows it.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The session that it belongs to.
    pub session: ContainerName,
    /// The session has no name that a caller chose, so it ends with its connection.
    pub is_anonymous: bool,
    /// The way it came in.
    pub frontend: Frontend,
    /// Fires when the caller withdraws.
    pub cancel: CancellationToken,
    /// Gets news of the call while it runs.
    pub progress: Progress,
    /// A path outside the allowed directories that the person at the terminal lets this one copy have.
    consented: Option<Arc<PathBuf>>,
    /// What the person's own input is, for one command.
    input: Arc<Mutex<Option<Input>>>,
    /// What a successful call reports beside its response.
    warnings: Arc<Mutex<Vec<Warning>>>,
}

/// The way a call came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frontend {
    /// `coracle call`.
    Call,
    /// The command line: the person acts.
    Cli,
    /// `coracle mcp`.
    Mcp,
    /// `coracle serve`: a program acts.
    Serve,
    /// `coracle ui`: the person acts, in a browser.
    Ui,
}

impl Frontend {
    /// Whether the person acts, and not an agent or a program.
    #[must_use]
    pub fn is_of_person(self) -> bool {
        matches!(self, Self::Cli | Self::Ui)
    }
}

/// Options that every frontend takes.
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
        }
    }
}

impl Context {
    /// Reads the configuration and makes the state directory. Asks no engine.
    ///
    /// # Errors
    /// `invalid_name` for a session that has none. A bad configuration is kept as the fault of its [`ConfigSource`].
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
        let printed_keys = Arc::default();
        Ok(Self { config, settings: settings.into(), host, call, records, engines, printed_keys })
    }

    /// The keys of providers that programs have printed.
    pub fn printed_keys(&self) -> &PrintedKeys {
        &self.printed_keys
    }

    /// The same process with an engine that a test has arranged.
    #[must_use]
    #[cfg(target_os = "linux")]
    pub fn with_fake(self, fake: coracle_runtime::FakeRuntime) -> Self {
        let config = Config { engine: Engine::Fake, ..(*self.config).clone() };
        let engines = self.engines.with_fake(fake);
        Self { config: Arc::new(config), engines: Arc::new(engines), ..self }
    }

    /// The same process, for one call.
    #[must_use]
    pub fn for_call(&self, cancel: CancellationToken, progress: Progress) -> Self {
        let call = CallContext { cancel, progress, ..self.call.clone() };
        Self { call, ..self.clone() }
    }

    /// The same process, for work that outlives the call: it cannot be cancelled, and its events have no listener.
    #[must_use]
    pub fn outliving_the_call(&self) -> Self {
        self.for_call(CancellationToken::new(), Progress::none())
    }

    /// The same process for one more client: a session of its own, withdrawn with the process.
    #[must_use]
    pub fn for_session(&self) -> Self {
        let cancel = self.call.cancel.child_token();
        let call = CallContext::new(None, self.call.frontend);
        Self { call: CallContext { cancel, progress: self.call.progress.clone(), ..call }, ..self.clone() }
    }

    /// The same process in another session, for a person who looks at it.
    #[must_use]
    pub fn in_session(&self, session: ContainerName) -> Self {
        Self { call: CallContext { session, is_anonymous: false, ..self.call.clone() }, ..self.clone() }
    }

    /// Our state directory.
    ///
    /// # Errors
    /// `config_invalid` when it is not the person's alone.
    pub fn state(&self) -> Result<&StateDir, Failure> {
        self.records.state()
    }

    /// What the person allows.
    ///
    /// # Errors
    /// Those of [`Context::state`].
    pub fn policy(&self) -> Result<Policy, Failure> {
        let mut policy = policy::from_config(&self.config, &self.host, self.state()?);
        policy.allow_roots.extend(self.call.consented.iter().map(|it| it.to_path_buf()));
        Ok(policy)
    }

    /// The same process, for one copy of a path that the person has let it have.
    #[must_use]
    pub fn with_consent(mut self, path: PathBuf) -> Self {
        self.call.consented = Some(Arc::new(path));
        self
    }

    /// Whether the person has let this call go beyond the allowed directories.
    pub(crate) fn has_consent(&self) -> bool {
        self.call.consented.is_some()
    }

    /// Refuses what is no diagnosis while the configuration cannot be used.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn configured(&self) -> Result<(), Failure> {
        self.settings.fault.clone().map_or(Ok(()), Err)
    }

    /// Who reads the answers of this process.
    #[must_use]
    pub fn reader(&self) -> HintReader {
        match self.call.frontend {
            Frontend::Cli | Frontend::Ui => HintReader::Person(self.settings.file.clone()),
            Frontend::Call | Frontend::Mcp | Frontend::Serve => HintReader::Agent,
        }
    }

    /// What this session may do to containers of others. The person may do everything.
    #[must_use]
    pub fn cross_session(&self) -> CrossSession {
        if self.call.frontend.is_of_person() { CrossSession::All } else { self.config.security.cross_session }
    }

    /// The process whose end is the end of this session. A session with a name ends when it has not been used for long.
    #[must_use]
    pub fn owner(&self) -> Option<ProcessId> {
        self.call.is_anonymous.then(ProcessId::current)
    }

    /// Whether this session has not been warned of something that it is warned of once. A session with a name is the same in
    /// every process.
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

    /// The same, for what outlives the call.
    pub fn shared_engines(&self) -> Arc<Engines> {
        self.engines.clone()
    }

    /// The engine that makes containers: that of a kept verdict of preflight, else the first that answers. It stays the
    /// same for this process.
    ///
    /// # Errors
    /// `engine_unavailable`, which says of each engine why it was not taken.
    pub async fn runtime(&self) -> Result<Arc<dyn ContainerRuntime>, Failure> {
        self.engines.chosen().await
    }

    /// Looks for engines once more: what was chosen, and what was passed over and why.
    ///
    /// # Errors
    /// `config_invalid` for an engine that the configuration does not allow.
    pub async fn detect(&self) -> Result<Choice, Failure> {
        self.engines.detect().await
    }

    /// The engine that a record names, without asking it.
    ///
    /// # Errors
    /// `engine_unavailable` when its program is not installed.
    pub fn runtime_for(&self, kind: EngineKind, endpoint: &str) -> Result<Arc<dyn ContainerRuntime>, Failure> {
        self.engines.recorded(kind, endpoint)
    }

    /// The program of an engine that a record names, for a person's terminal.
    pub fn terminal_of(&self, kind: EngineKind, endpoint: &str) -> Result<EngineProgram, Failure> {
        self.engines.connect(kind, endpoint).map(|(_, program)| program)
    }

    /// The same process, whose standard input is for the command that it runs.
    #[must_use]
    pub fn with_input(mut self, input: Input) -> Self {
        self.call.input = Arc::new(Mutex::new(Some(input)));
        self
    }

    /// Standard input, if it is for a command. Only the first gets it.
    pub fn take_input(&self) -> Option<Input> {
        self.call.input.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Reports something beside the response of the call, if the call succeeds.
    pub fn warn(&self, warnings: impl IntoIterator<Item = Warning>) {
        self.call.warnings.lock().unwrap_or_else(PoisonError::into_inner).extend(warnings);
    }

    /// What was reported so far.
    pub fn warnings(&self) -> Vec<Warning> {
        self.call.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what was reported so far.
    pub fn take_warnings(&self) -> Vec<Warning> {
        std::mem::take(&mut self.call.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The same call, whose warnings from here on are taken apart from the others.
    #[must_use]
    pub fn with_own_warnings(&self) -> Self {
        let call = CallContext { warnings: Arc::default(), ..self.call.clone() };
        Self { call, ..self.clone() }
    }

    /// Connections to the guests of containers.
    pub fn links(&self) -> &Links {
        self.records.links()
    }

    /// Our records.
    ///
    /// # Errors
    /// `config_invalid` when the state directory cannot be used.
    pub fn store(&self) -> Result<Store, Failure> {
        self.records.store()
    }

    /// For a process that serves a session: the network that Docker's containers share stays from one to the next, until
    /// `release_network`.
    pub fn keep_network(&self) {
        self.records.keep_network();
    }

    /// The containers of sessions.
    ///
    /// # Errors
    /// `config_invalid` when the state directory cannot be used.
    pub fn session_containers(&self) -> Result<SessionContainers, Failure> {
        self.records.session_containers()
    }

    /// What hears of what is done to the session's containers.
    pub fn slot_observer(&self) -> Box<SlotObserver<'static>> {
        event_log::slot_observer(self.state().ok(), &self.call.session)
    }

    /// `work`, unless the caller withdraws. For work that may be dropped at any point.
    ///
    /// # Errors
    /// `cancelled`, or those of `work`.
    pub async fn unless_cancelled<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        match self.call.cancel.run_until_cancelled(work).await {
            Some(done) => done,
            None => Err(Failure::cancelled()),
        }
    }

    /// A process whose things all lie below one directory, with a fake engine.
    #[cfg(all(target_os = "linux", any(test, feature = "testing")))]
    #[expect(clippy::unwrap_used, reason = "only tests call it")]
    pub fn for_tests(dir: &std::path::Path) -> Self {
        let context = Self::open(Host::below(dir), &Options::default(), Frontend::Call).unwrap();
        context.with_fake(coracle_runtime::FakeRuntime::new())
    }
}

/// A name for a session without one.
fn anonymous(frontend: Frontend) -> ContainerName {
    let prefix = if frontend == Frontend::Serve { "serve" } else { "mcp" };
    let name = format!("{prefix}-{}", coracle_types::random_hex::<8>());
    ContainerName::parse(&name).expect("hex digits stand in a name")
}

/// The name of the session. The connection of an agent or a program is a session without a name, unless it was given one.
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
    fn clients_of_one_process_are_told_apart_and_end_with_it() {
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
    async fn the_fake_is_one_per_process() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        assert_eq!(cx.runtime().await.unwrap().kind().as_str(), "fake");
        assert_eq!(cx.cross_session(), CrossSession::Use);
        let mut person = cx;
        person.call.frontend = Frontend::Cli;
        assert_eq!(person.cross_session(), CrossSession::All);
    }
}
