//! What belongs to a process and not to a call: the tools for its agent, and the sandboxes that it uses.

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

/// How often a server renews its lease. Every second time it also removes unused containers.
const EVERY: Duration = Duration::from_secs(30);

/// How long a shell may take to end with its session. Its guest ends it afterwards.
const CLOSING: Duration = Duration::from_secs(3);

/// The process as one of its clients uses it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Process {
    /// The context of its operations.
    pub context: Context,
    /// Toolsets of the agent.
    pub toolsets: Arc<[Toolset]>,
    registry: SandboxRegistry,
    session_tools: Arc<OnceLock<SessionTools>>,
    own_secrets: Arc<OnceLock<Redactor>>,
    forwards: Forwards,
    shells: Shells,
    machine_lock: Arc<Mutex<()>>,
    /// Cancels all calls of the session.
    session_cancel: CancellationToken,
}

impl Process {
    /// Reads the configuration and creates the state directory. Contacts no engine.
    ///
    /// # Errors
    /// Those of [`Context::open`].
    pub fn open(host: Host, options: &Options, frontend: Frontend) -> Result<Self, Failure> {
        let context = Context::open(host, options, frontend)?;
        let toolsets = options.toolsets.as_ref().unwrap_or(&context.config.workspace.toolsets).as_slice().into();
        Ok(Self { toolsets, ..Self::new(context) })
    }

    /// Sets the agent's toolsets to those of the configuration.
    #[must_use]
    pub fn new(context: Context) -> Self {
        let toolsets = context.config.workspace.toolsets.as_slice().into();
        let session_cancel = context.call.cancel.clone();
        let (registry, session_tools, own_secrets, forwards, shells, machine_lock) = Default::default();
        Self { context, toolsets, registry, session_tools, own_secrets, forwards, shells, machine_lock, session_cancel }
    }

    /// Replaces the engine, for tests.
    #[must_use]
    #[cfg(target_os = "linux")]
    pub fn with_fake(self, fake: coracle_runtime::FakeRuntime) -> Self {
        let context = self.context.clone().with_fake(fake);
        self.with_context(context)
    }

    /// Replaces the context of its operations.
    #[must_use]
    pub fn with_context(self, context: Context) -> Self {
        Self { context, ..self }
    }

    /// Returns the same process for one call.
    #[must_use]
    pub fn for_call(&self, cancel: CancellationToken, progress: Progress) -> Self {
        Self { context: self.context.for_call(cancel, progress), ..self.clone() }
    }

    /// Returns the same process for one more client: a session of its own, cancelled with the process.
    #[must_use]
    pub fn for_session(&self) -> Self {
        let (session_tools, forwards, shells, machine_lock) = Default::default();
        let context = self.context.for_session();
        let session_cancel = context.call.cancel.clone();
        Self { context, session_tools, forwards, shells, machine_lock, session_cancel, ..self.clone() }
    }

    /// Returns the sandboxes that this process uses.
    pub fn registry(&self) -> &SandboxRegistry {
        &self.registry
    }

    /// Returns the sandboxes for operations on all of them.
    pub fn sandboxes(&self) -> Sandboxes<'_> {
        Sandboxes { cx: &self.context, registry: &self.registry }
    }

    /// Returns what the session's tools work with. A container is created when a tool first needs one.
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

    /// Held by the one call that finds or creates the session's container.
    pub fn machine_lock(&self) -> &Arc<Mutex<()>> {
        &self.machine_lock
    }

    /// Returns the same process for work of the session that continues after the call is cancelled.
    pub fn for_session_work(&self) -> Self {
        self.for_call(self.session_cancel.clone(), self.context.call.progress.clone())
    }

    /// The ports that the session forwards.
    pub fn forwards(&self) -> &Forwards {
        &self.forwards
    }

    /// The open shells of the session.
    pub fn shells(&self) -> &Shells {
        &self.shells
    }

    /// Ends the session's shells and the interpreters that keep variables.
    pub async fn end_interactive(&self) {
        if let Some(tools) = self.session_tools.get() {
            tools.end_kernels();
        }
        self.shells.close_all(CLOSING).await;
    }

    /// The values of this process's variables with secret names, to be redacted from output.
    pub fn own_secrets(&self) -> &Redactor {
        self.own_secrets.get_or_init(|| secrets_of(&self.context.host))
    }

    /// Ends all runs of agents, and waits for them.
    pub async fn end(&self) {
        self.registry.shut_down().await;
    }

    /// Renews the lease of the session's containers for as long as a server runs.
    pub async fn run_maintenance(self) {
        let cx = &self.context;
        let Ok(slots) = cx.session_containers() else { return };
        let owner = ProcessId::current();
        let mut turns = tokio::time::interval(EVERY);
        turns.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut turn = 0_u64;
        while cx.call.cancel.run_until_cancelled(turns.tick()).await.is_some() {
            if let Err(err) = slots.renew(&owner) {
                tracing::warn!(%err, "cannot record that the session is in use");
            }
            if turn.is_multiple_of(2) {
                session_tools::recover(cx, &slots, EndLimits::OF_OTHERS).await;
                // Boxed because the future is large and rarely runs: it inspects a sandbox and saves its work.
                Box::pin(sandbox::expire(self.sandboxes())).await;
                if let Err(err) = slots.sweep(cx.engines(), &ClockReading::now(), &*cx.slot_observer()).await {
                    tracing::warn!(%err, "cannot look for unused containers");
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
