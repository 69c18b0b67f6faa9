//! What belongs to a process and not to a call: the tools that its agent gets, and the sandboxes that it uses.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use coracle_context::config::Toolset;
use coracle_context::context::{Context, Frontend, Options};
use coracle_context::failure::Failure;
use coracle_context::host::Host;
use coracle_context::host_identity::secrets_of;
use coracle_context::progress::Progress;
use coracle_lifecycle::ClockReading;
use coracle_sandbox::SandboxRegistry;
use coracle_types::{ProcessId, Redactor};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::forwards::Forwards;
use crate::sandbox::{self, Sandboxes};
use crate::session_tools::{self, EndLimits, SessionTools};
use crate::shells::Shells;

/// How often a server renews its lease; every second time it looks for unused containers.
const EVERY: Duration = Duration::from_secs(30);

/// A shell may take so long to end with its session; its guest ends it afterwards.
const CLOSING: Duration = Duration::from_secs(3);

/// A process, as one of its clients uses it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Process {
    /// What its operations are given.
    pub context: Context,
    /// Tools that the agent gets.
    pub toolsets: Arc<[Toolset]>,
    registry: SandboxRegistry,
    session_tools: Arc<OnceLock<SessionTools>>,
    own_secrets: Arc<OnceLock<Redactor>>,
    forwards: Forwards,
    shells: Shells,
    machine_lock: Arc<Mutex<()>>,
    /// Withdraws all calls of the session.
    session_cancel: CancellationToken,
}

impl Process {
    /// Reads the configuration and makes the state directory. Asks no engine.
    ///
    /// # Errors
    /// Those of [`Context::open`].
    pub fn open(host: Host, options: &Options, frontend: Frontend) -> Result<Self, Failure> {
        let context = Context::open(host, options, frontend)?;
        let toolsets = options.toolsets.as_ref().unwrap_or(&context.config.workspace.toolsets).as_slice().into();
        Ok(Self { toolsets, ..Self::new(context) })
    }

    /// One whose agent gets the tools that the configuration names.
    #[must_use]
    pub fn new(context: Context) -> Self {
        let toolsets = context.config.workspace.toolsets.as_slice().into();
        let session_cancel = context.call.cancel.clone();
        let (registry, session_tools, own_secrets, forwards, shells, machine_lock) = Default::default();
        Self { context, toolsets, registry, session_tools, own_secrets, forwards, shells, machine_lock, session_cancel }
    }

    /// The same with an engine that a test has arranged.
    #[must_use]
    #[cfg(target_os = "linux")]
    pub fn with_fake(self, fake: coracle_runtime::FakeRuntime) -> Self {
        let context = self.context.clone().with_fake(fake);
        self.with_context(context)
    }

    /// The same process, which gives its operations that.
    #[must_use]
    pub fn with_context(self, context: Context) -> Self {
        Self { context, ..self }
    }

    /// The same process, for one call.
    #[must_use]
    pub fn for_call(&self, cancel: CancellationToken, progress: Progress) -> Self {
        Self { context: self.context.for_call(cancel, progress), ..self.clone() }
    }

    /// The same process for one more client: a session of its own, withdrawn with the process.
    #[must_use]
    pub fn for_session(&self) -> Self {
        let (session_tools, forwards, shells, machine_lock) = Default::default();
        let context = self.context.for_session();
        let session_cancel = context.call.cancel.clone();
        Self { context, session_tools, forwards, shells, machine_lock, session_cancel, ..self.clone() }
    }

    /// The sandboxes that this process uses.
    pub fn registry(&self) -> &SandboxRegistry {
        &self.registry
    }

    /// The same for what is done to all of them.
    pub fn sandboxes(&self) -> Sandboxes<'_> {
        Sandboxes { cx: &self.context, registry: &self.registry }
    }

    /// What the tools of the session work with. It has no container until one of them needs one.
    ///
    /// # Errors
    /// `config_invalid` when the state directory cannot be used.
    pub fn session_tools(&self) -> Result<SessionTools, Failure> {
        if let Some(tools) = self.session_tools.get() {
            return Ok(tools.clone());
        }
        let tools = SessionTools::new(&self.context, self.has_jobs())?;
        Ok(self.session_tools.get_or_init(|| tools).clone())
    }

    /// Whether the agent has operations on jobs.
    fn has_jobs(&self) -> bool {
        [Toolset::Agent, Toolset::Classic].iter().any(|it| self.toolsets.contains(it))
    }

    /// Held by the one call that finds or makes the session's machine.
    pub fn machine_lock(&self) -> &Arc<Mutex<()>> {
        &self.machine_lock
    }

    /// The same process for work of the session that goes on when the call is withdrawn.
    pub fn for_session_work(&self) -> Self {
        self.for_call(self.session_cancel.clone(), self.context.call.progress.clone())
    }

    /// The ports that the session forwards.
    pub fn forwards(&self) -> &Forwards {
        &self.forwards
    }

    /// The shells that the session has open.
    pub fn shells(&self) -> &Shells {
        &self.shells
    }

    /// Ends what runs for the session alone: its shells, and the interpreters that keep variables.
    pub async fn end_interactive(&self) {
        if let Some(tools) = self.session_tools.get() {
            tools.end_kernels();
        }
        self.shells.close_all(CLOSING).await;
    }

    /// Variables of this process with the names of secrets: what prints them is not written down.
    pub fn own_secrets(&self) -> &Redactor {
        self.own_secrets.get_or_init(|| secrets_of(&self.context.host))
    }

    /// Ends all runs of agents, and waits for that.
    pub async fn end(&self) {
        self.registry.shut_down().await;
    }

    /// Keeps the session's containers for as long as a server runs.
    pub async fn run_maintenance(self) {
        let cx = &self.context;
        let Ok(slots) = cx.session_containers() else { return };
        let owner = ProcessId::current();
        let mut turns = tokio::time::interval(EVERY);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut turn = 0_u64;
        while cx.call.cancel.run_until_cancelled(turns.tick()).await.is_some() {
            if let Err(err) = slots.renew(&owner) {
                tracing::warn!(%err, "that the session is used cannot be written down");
            }
            if turn.is_multiple_of(2) {
                session_tools::recover(cx, &slots, EndLimits::OF_OTHERS).await;
                // Rare and large: what is in a sandbox is looked at, and saved.
                Box::pin(sandbox::expire(self.sandboxes())).await;
                if let Err(err) = slots.sweep(cx.engines(), &ClockReading::now(), &*cx.slot_observer()).await {
                    tracing::warn!(%err, "containers that nobody uses cannot be looked for");
                }
            }
            turn += 1;
        }
    }
}

impl AsRef<Context> for Process {
    fn as_ref(&self) -> &Context {
        &self.context
    }
}

impl AsRef<Process> for Process {
    fn as_ref(&self) -> &Process {
        self
    }
}
