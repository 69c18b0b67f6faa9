//! The engines of a process: the chosen one, and those of records.

mod auto;
pub mod connect;
mod embedded;
mod embedded_images;
mod kubernetes;
mod logins;
#[cfg(target_os = "linux")]
pub mod obstacles;
mod preflight_cache;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use coracle_engine_program::{ApiUse, EngineProgram, EngineSettings};
use coracle_host::registry_login::LoginFiles;
use coracle_lifecycle::SlotId;
use coracle_runtime::{ContainerRuntime, EngineInfo, ObservedRuntime};
use coracle_types::{EngineKind, Error};
use serde_json::json;
use tokio::sync::OnceCell;

use self::connect::{connect, detect};
pub use self::embedded::data_dir;
#[cfg(target_os = "linux")]
pub use self::embedded::runtime;
pub use self::embedded_images::{CopySource, DamagedObject, ImageVerification};
pub use self::kubernetes::ClusterFacts;
pub use self::preflight_cache::{Backend, Ready};
use crate::config::{Config, Engine, EngineApi};
use crate::failure::{Code, Failure};
use crate::host::Host;
use crate::records::Records;
use crate::state::StateDir;
use crate::{event_log, guest};

/// Engines that this process has used, reached as configured.
#[derive(Debug)]
pub struct Engines {
    config: Arc<Config>,
    host: Arc<Host>,
    /// Records of containers, and the state directory.
    records: Arc<Records>,
    looking: tokio::sync::Mutex<()>,
    /// A permit for each running command.
    running: OnceCell<tokio::sync::Semaphore>,
    chosen: OnceCell<Arc<dyn ContainerRuntime>>,
    /// For images of an engine that cannot build.
    of_this_machine: OnceCell<Ready>,
    recorded: Mutex<BTreeMap<(EngineKind, String), Arc<dyn ContainerRuntime>>>,
    /// Warnings that sessions without a chosen name got, by session.
    reported: Mutex<BTreeSet<String>>,
    /// None except on Linux, since its guest is part of this process.
    fake: Option<Arc<dyn ContainerRuntime>>,
}

/// How long a command waits for a permit.
const PERMIT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// The result of detecting engines.
#[derive(Debug)]
pub struct Choice {
    /// The first engine that answers, with its information.
    pub chosen: Option<(Arc<dyn ContainerRuntime>, EngineInfo)>,
    /// Engines that were not chosen, installed or not.
    pub skipped: Vec<(EngineKind, Error)>,
    /// Why `auto` chose it.
    pub reason: Option<String>,
}

impl Choice {
    /// Contacts these engines in this order, until one answers.
    async fn try_in_order(&mut self, order: &[EngineKind], settings: &EngineSettings) {
        if self.chosen.is_none() {
            let found = detect(order, settings).await;
            self.chosen = found.chosen;
            self.skipped.extend(found.skipped);
        }
    }

    /// Adds an engine that was contacted: it is chosen if it answered.
    fn add(&mut self, kind: EngineKind, answered: Result<(Arc<dyn ContainerRuntime>, EngineInfo), Error>) {
        match answered {
            Ok(chosen) => self.chosen = Some(chosen),
            Err(err) => self.skipped.push((kind, err)),
        }
    }
}

impl Engines {
    pub fn new(config: Arc<Config>, host: Arc<Host>, records: Arc<Records>) -> Self {
        let (looking, running, chosen, of_this_machine, recorded, reported) = Default::default();
        Self { config, host, records, looking, running, chosen, of_this_machine, recorded, reported, fake: fake() }
    }

    /// Replaces the engine, for tests.
    #[cfg(target_os = "linux")]
    pub fn with_fake(&self, fake: coracle_runtime::FakeRuntime) -> Self {
        let config = Config { engine: Engine::Fake, ..(*self.config).clone() };
        Self {
            fake: Some(ObservedRuntime::with_spans(fake)),
            ..Self::new(Arc::new(config), self.host.clone(), self.records.clone())
        }
    }

    fn state(&self) -> Result<&StateDir, Failure> {
        self.records.state()
    }

    /// Waits for a permit to run a command (`exec.max_parallel`).
    ///
    /// # Errors
    /// `busy` if none was released for a while.
    pub async fn place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Failure> {
        let most = self.config.exec.max_parallel as usize;
        let running = self.running.get_or_init(|| async { tokio::sync::Semaphore::new(most) }).await;
        let place = tokio::time::timeout(PERMIT_TIMEOUT, running.acquire()).await;
        place.ok().and_then(Result::ok).ok_or_else(|| {
            Failure::new(Code::Busy, format!("{most} commands run already"))
                .detail("limit", most)
                .hint_setting("try again when one has ended", "exec.max_parallel")
        })
    }

    /// Whether a warning of a session without a chosen name is new.
    pub fn is_first_report(&self, key: String) -> bool {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).insert(key)
    }

    /// Locked while preflight inspects the host, so that concurrent calls do it once.
    pub async fn lock_inspection(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.looking.lock().await
    }

    /// Returns the engine that creates containers: that of a cached verdict of preflight, else the configured one, or
    /// that of `auto`. It does not change: containers of one process are not spread over two engines because one was
    /// slow for a moment.
    ///
    /// # Errors
    /// `engine_unavailable`, with the reason for each engine.
    pub async fn chosen(&self) -> Result<Arc<dyn ContainerRuntime>, Failure> {
        let look = || async {
            if let Some(ready) = self.cached() {
                return Ok(ready.runtime);
            }
            let choice = self.detect().await?;
            for (kind, why) in &choice.skipped {
                tracing::info!("{kind} is not used: {why}");
            }
            choice.chosen.map(|(runtime, _)| runtime).ok_or_else(|| unavailable(choice.skipped))
        };
        self.chosen.get_or_try_init(look).await.cloned()
    }

    /// Detects engines again, and returns which one was chosen, and why others were skipped.
    ///
    /// # Errors
    /// `config_invalid` for an engine that the configuration does not allow.
    pub async fn detect(&self) -> Result<Choice, Failure> {
        let config = &*self.config;
        let mut choice = Choice { chosen: None, skipped: Vec::new(), reason: None };
        if config.engine == Engine::Fake {
            let fake = self.recorded(EngineKind::Fake, "local")?;
            let info = fake.info().await?;
            return Ok(Choice { chosen: Some((fake, info)), ..choice });
        }
        let settings = settings(config, &self.host, self.state()?)?;
        match config.engine {
            Engine::Docker => choice.try_in_order(&[EngineKind::Docker], &settings).await,
            Engine::Podman => choice.try_in_order(&[EngineKind::Podman], &settings).await,
            Engine::Container => choice.try_in_order(&[EngineKind::Container], &settings).await,
            Engine::Embedded => choice.add(EngineKind::Embedded, self.embedded().await),
            Engine::Kubernetes => choice.add(EngineKind::Kubernetes, self.kubernetes().await),
            Engine::Auto | Engine::Fake => self.detect_auto(&mut choice, &settings).await,
        }
        Ok(choice)
    }

    /// Returns an engine on this host that can build images for another one: Podman, Docker, else the embedded one.
    ///
    /// # Errors
    /// `engine_unavailable`, with the reason for each engine.
    pub async fn of_this_machine(&self) -> Result<Ready, Failure> {
        let look = || async {
            let settings = settings(&self.config, &self.host, self.state()?)?;
            let mut choice = Choice { chosen: None, skipped: Vec::new(), reason: None };
            choice.try_in_order(&[EngineKind::Podman, EngineKind::Docker], &settings).await;
            if choice.chosen.is_none() {
                self.detect_others(&mut choice, &settings).await;
            }
            let ready = |(runtime, info): (_, EngineInfo)| Ready {
                runtime,
                ignored_limits: info.ignored_limits,
                gpu: info.gpu,
            };
            choice.chosen.map(ready).ok_or_else(|| unavailable(choice.skipped))
        };
        self.of_this_machine.get_or_try_init(look).await.cloned()
    }

    /// Tries the other engines if neither Podman nor Docker answers: Apple's engine if neither is installed, then the
    /// embedded one.
    async fn detect_others(&self, choice: &mut Choice, settings: &EngineSettings) {
        let is_missing = |it: &(EngineKind, Error)| matches!(it.1, Error::NotInstalled { .. });
        if choice.skipped.iter().all(is_missing) {
            let last = detect(&[EngineKind::Container], settings).await;
            // On most systems, a missing Apple engine is not worth a message.
            choice.skipped.extend(last.skipped.into_iter().filter(|it| !is_missing(it)));
            choice.chosen = last.chosen;
        }
        let was_tried = choice.skipped.iter().any(|it| it.0 == EngineKind::Embedded);
        if choice.chosen.is_none() && !was_tried && cfg!(target_os = "linux") {
            choice.add(EngineKind::Embedded, self.embedded().await);
        }
    }

    /// Returns the embedded engine, if it can work here.
    async fn embedded(&self) -> Result<(Arc<dyn ContainerRuntime>, EngineInfo), Error> {
        embedded::check(&self.config, &data_dir(&self.config, &self.host))?;
        let runtime = self.open_embedded("local")?;
        let info = runtime.info().await?;
        Ok((runtime, info))
    }

    /// Returns the configured cluster, if it answers.
    async fn kubernetes(&self) -> Result<(Arc<dyn ContainerRuntime>, EngineInfo), Error> {
        let opened = kubernetes::open(&self.host, &self.config)?;
        let key = (EngineKind::Kubernetes, opened.endpoint().address);
        // One instance per process: it caches locations of images, and has a connection.
        let runtime = {
            let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
            recorded.entry(key).or_insert(opened).clone()
        };
        let info = runtime.info().await?;
        Ok((runtime, info))
    }

    /// Inspects namespace and permissions in the configured cluster.
    pub async fn inspect_cluster(&self) -> Result<ClusterFacts, Error> {
        kubernetes::inspect(&self.host, &self.config).await
    }

    /// Opens the embedded engine on the data directory of a record's endpoint; `local` means the configured one.
    fn open_embedded(&self, endpoint: &str) -> Result<Arc<dyn ContainerRuntime>, Error> {
        let dir = if endpoint == "local" { data_dir(&self.config, &self.host) } else { endpoint.into() };
        let placed = self.state().ok().and_then(|it| guest::place_for_this_machine(&self.config, it).ok()?);
        embedded::open(&self.host, &self.config, &dir, placed)
    }

    /// Returns the engine of a record, at its endpoint, without contacting it.
    ///
    /// # Errors
    /// `engine_unavailable` if its program is not installed.
    pub fn recorded(&self, kind: EngineKind, endpoint: &str) -> Result<Arc<dyn ContainerRuntime>, Failure> {
        if kind == EngineKind::Fake {
            let missing = || Failure::new(Code::Unsupported, "the fake engine runs on Linux only");
            return self.fake.clone().ok_or_else(missing);
        }
        if let Some(chosen) = self.chosen.get().filter(|it| it.kind() == kind && it.endpoint().address == endpoint) {
            return Ok(chosen.clone());
        }
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (kind, endpoint.to_owned());
        if let Some(known) = recorded.get(&key) {
            return Ok(known.clone());
        }
        let runtime = match kind {
            EngineKind::Embedded => self.open_embedded(endpoint)?,
            EngineKind::Kubernetes => kubernetes::open_recorded(&self.host, &self.config, endpoint)?,
            _ => self.connect(kind, endpoint)?.0,
        };
        recorded.insert(key, runtime.clone());
        Ok(runtime)
    }

    /// Connects to an engine and its program, at an endpoint from a record.
    pub fn connect(
        &self,
        kind: EngineKind,
        endpoint: &str,
    ) -> Result<(Arc<dyn ContainerRuntime>, EngineProgram), Failure> {
        if !kind.has_program() {
            return Err(Failure::new(Code::Unsupported, format!("the {kind} engine has no program")));
        }
        let given = settings(&self.config, &self.host, self.state()?)?;
        // A program that is configured for another engine is ignored.
        let program = given.program.clone().filter(|_| is_configured(self.config.engine, kind));
        let endpoint = (endpoint != "local").then(|| endpoint.to_owned());
        Ok(connect(kind, &EngineSettings { program, endpoint, ..given })?)
    }
}

#[cfg(target_os = "linux")]
fn fake() -> Option<Arc<dyn ContainerRuntime>> {
    Some(ObservedRuntime::with_spans(coracle_runtime::FakeRuntime::new()))
}

#[cfg(not(target_os = "linux"))]
fn fake() -> Option<Arc<dyn ContainerRuntime>> {
    None
}

fn is_configured(engine: Engine, kind: EngineKind) -> bool {
    matches!(
        (engine, kind),
        (Engine::Docker, EngineKind::Docker)
            | (Engine::Podman, EngineKind::Podman)
            | (Engine::Container, EngineKind::Container)
    )
}

#[async_trait]
impl coracle_lifecycle::Engines for Engines {
    async fn for_record(
        &self,
        kind: EngineKind,
        endpoint: &str,
    ) -> coracle_lifecycle::Result<Arc<dyn ContainerRuntime>> {
        self.recorded(kind, endpoint).map_err(no_engine)
    }

    async fn preferred(&self) -> coracle_lifecycle::Result<Arc<dyn ContainerRuntime>> {
        self.chosen().await.map_err(no_engine)
    }

    fn traced(&self, runtime: Arc<dyn ContainerRuntime>, slot: SlotId<'_>) -> Arc<dyn ContainerRuntime> {
        event_log::observe(self.state().ok(), runtime, slot)
    }
}

fn no_engine(failure: Failure) -> coracle_lifecycle::Error {
    coracle_lifecycle::Error::NoEngine(Box::new(failure.into_inner()))
}

/// Returns how to reach the configured engine.
fn settings(config: &Config, host: &Host, state: &StateDir) -> Result<EngineSettings, Failure> {
    if config.has_remote_engine() && !config.allow_remote_engine {
        return Err(Failure::config("engine_host", None, "the engine is on another machine, which is not allowed")
            .hint_only_setting("set", "allow_remote_engine"));
    }
    let alone = matches!(config.engine, Engine::Auto | Engine::Embedded | Engine::Kubernetes | Engine::Fake);
    if alone && (config.engine_path.is_some() || config.engine_host.is_some()) {
        return Err(Failure::config("engine", None, "`engine_path` and `engine_host` need an engine to belong to")
            .hint("set `engine` to `docker`, `podman` or `container` as well"));
    }
    Ok(EngineSettings {
        program: config.engine_path.clone(),
        endpoint: config.engine_host.clone(),
        config_dir: state.engine_config(),
        home: host.home.clone(),
        runtime_dir: host.runtime_dir.clone(),
        temp_dir: host.temp_dir.clone(),
        api: match config.engine_api {
            EngineApi::Auto => ApiUse::Auto,
            EngineApi::Never => ApiUse::Never,
        },
        ssh_config: config.engine_ssh_config.clone(),
        ssh_agent: host.ssh_agent.clone(),
        logins: LoginFiles::new(&host.home, logins::login_options(host)),
    })
}

/// Builds the failure with the reason for each engine. Installed engines that do not answer precede those that are not
/// installed.
fn unavailable(mut skipped: Vec<(EngineKind, Error)>) -> Failure {
    if let [(EngineKind::Container | EngineKind::Kubernetes, _)] = skipped[..] {
        // There is only one engine, so its own error is the reason.
        return skipped.remove(0).1.into();
    }
    let why: Vec<String> = skipped.iter().map(|(_, err)| short(err)).collect();
    let down = skipped.iter().any(|(_, err)| !matches!(err, Error::NotInstalled { .. }));
    let engines: Vec<_> = skipped.iter().map(|(kind, err)| json!({ "engine": kind, "why": short(err) })).collect();
    let failure = Failure::new(Code::EngineUnavailable, format!("no container engine answers: {}", why.join("; ")))
        .detail("engine", engines);
    match down {
        true => failure.hint("`preflight` says what to do for each engine"),
        false => failure.hint_for(
            "ask the user to run `coracle setup`, which installs an engine; then call `preflight`",
            "run `coracle setup`, which installs an engine",
        ),
    }
}

fn short(err: &Error) -> String {
    match err {
        Error::Unavailable { engine: EngineKind::Embedded, excerpt, .. } => {
            format!("the embedded engine cannot work here: {}", excerpt.as_str())
        }
        Error::Unavailable { engine, .. } => format!("{engine} is installed and does not answer"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use coracle_types::{EngineKind, Error, Excerpt};

    use super::{settings, unavailable};
    use crate::config::{Config, Engine};
    use crate::host::Host;
    use crate::records::Records;
    use crate::state::StateDir;

    #[test]
    fn the_reason_for_each_engine_is_reported() {
        let missing = || Error::NotInstalled { program: "podman".into() };
        let down = Error::Unavailable { engine: EngineKind::Docker, denied: false, excerpt: Excerpt::default() };
        let failure = unavailable(vec![(EngineKind::Podman, missing()), (EngineKind::Docker, down)]);
        let message =
            "no container engine answers: no `podman` program was found; docker is installed and does not answer";
        assert_eq!(failure.message, message);
        assert!(failure.into_inner().hint.unwrap().contains("`preflight`"));
        assert!(
            unavailable(vec![(EngineKind::Podman, missing())]).into_inner().hint.unwrap().contains("coracle setup")
        );
    }

    #[test]
    fn r21_an_apple_engine_that_is_old_or_down_has_a_hint() {
        let old = Error::TooOld { engine: EngineKind::Container, found: "1.0.0".into(), needed: "1.1.0" };
        let failure = unavailable(vec![(EngineKind::Container, old)]);
        assert_eq!(failure.code.word(), "engine_too_old");
        assert_eq!(failure.message, "container 1.0.0 is too old: 1.1.0 or later is needed");
        let down = Error::Unavailable { engine: EngineKind::Container, denied: false, excerpt: Excerpt::default() };
        let failure = unavailable(vec![(EngineKind::Container, down)]);
        assert_eq!(failure.code.word(), "engine_unavailable");
        assert!(failure.into_inner().hint.unwrap().contains("container system start"));
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_commands_are_limited_by_the_configuration() {
        let mut config = Config::default();
        config.exec.max_parallel = 1;
        let (host, state) = (Host::below(Path::new("/h")), StateDir::at(Path::new("/s")));
        let records = Records::new(&config, Ok(state.into()));
        let engines = super::Engines::new(config.into(), host.into(), records.into());
        let held = engines.place().await.unwrap();
        assert_eq!(engines.place().await.unwrap_err().code.word(), "busy");
        drop(held);
        assert!(engines.place().await.is_ok());
    }

    #[test]
    fn an_engine_on_another_host_has_to_be_allowed_by_the_user() {
        let (host, state) = (Host::below(Path::new("/h")), StateDir::at(Path::new("/s")));
        let key = |config: &Config| settings(config, &host, &state).err().map(|it| it.details["key"].clone());
        let remote = Config { engine: Engine::Docker, engine_host: Some("ssh://me@there".into()), ..Config::default() };
        assert_eq!(key(&remote), Some("engine_host".into()));
        assert_eq!(key(&Config { allow_remote_engine: true, ..remote.clone() }), None);
        let local = Config { engine_host: Some("unix:///run/d.sock".into()), ..remote };
        assert_eq!(key(&local), None);
        assert_eq!(key(&Config { engine: Engine::Auto, ..local }), Some("engine".into()));
    }
}
