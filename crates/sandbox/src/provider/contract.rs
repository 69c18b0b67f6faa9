//! What a sandbox can do, and the requests to it.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use coracle_proxy::UsageTotals;
use coracle_types::SandboxWarning;

use super::stream::ExecStream;
use crate::Result;
use crate::protocol::{ResponseFrame, WorkerRequest};

/// One sandbox: its container, created when it is first needed, and again if it is lost.
#[async_trait]
pub trait SandboxProvider: fmt::Debug + Send + Sync {
    /// Makes sure that it runs and is ready.
    ///
    /// # Errors
    /// `sandbox_unavailable`, `sandbox_not_ready`, `egress_not_enforced`.
    async fn ensure_running(&self) -> Result<SandboxInfo>;

    /// Runs a program as the agent.
    ///
    /// # Errors
    /// `policy_denied` for another user; what an engine or a guest could not do.
    async fn exec_stream(&self, call: ExecCall) -> Result<ExecStream>;

    /// Writes a file whole; its size as the guest measured it.
    ///
    /// # Errors
    /// `write_failed`; then the old file is there.
    async fn write_file(&self, path: &str, content: &[u8], opts: WriteOpts) -> Result<u64>;

    /// Starts a worker.
    ///
    /// # Errors
    /// Why there is none.
    async fn spawn_worker(&self, call: WorkerCall) -> Result<Box<dyn WorkerProcess>>;

    /// Leads from a free port of 127.0.0.1 to a port inside, until the answer is dropped.
    ///
    /// # Errors
    /// What could not be listened on.
    async fn forward(&self, guest_port: u16) -> Result<Forward>;

    /// A directory of the host or of the sandbox as a path inside.
    ///
    /// # Errors
    /// `invalid_input` for a path that is in neither.
    fn resolve_cwd(&self, cwd: &str) -> Result<String>;

    /// What it can do.
    fn capabilities(&self) -> SandboxCapabilities;

    /// Returns its state. Changes nothing.
    async fn health_check(&self) -> SandboxHealth;

    /// What the proxy itself counted.
    fn metered(&self) -> UsageTotals;

    /// Saves what is to be saved and takes it away.
    async fn teardown(&self, how: Teardown) -> TeardownReport;
}

/// A worker that runs.
#[async_trait]
pub trait WorkerProcess: fmt::Debug + Send {
    /// Sends a request.
    ///
    /// # Errors
    /// `request_too_large`, before a byte was sent; `worker_died`.
    async fn send(&mut self, request: &WorkerRequest) -> Result<()>;

    /// The next frame; `None` is a clean end. The future may be dropped and called again.
    ///
    /// # Errors
    /// `malformed_frame`, `worker_died`, `sandbox_lost`; then it is of no more use.
    async fn recv(&mut self) -> Result<Option<ResponseFrame>>;

    /// Ends it: by an end of its input, after 5 s by TERM, after 5 more by KILL.
    ///
    /// # Errors
    /// It is not known to be gone.
    async fn close(&mut self) -> Result<()>;

    /// Whether it is worth a request.
    fn alive(&self) -> bool;
}

/// A sandbox that is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxInfo {
    /// Id of its container.
    pub id: String,
    /// From 1, one more for each start.
    pub generation: u64,
    /// Of its image.
    pub image_id: String,
    /// Why there is another container than before: `unresponsive`, `crashed`, `oom`, …
    pub recreated: Option<String>,
    /// It is as earlier settings wanted it, since a command runs in it.
    pub spec_pending: bool,
}

impl SandboxInfo {
    /// What else there is to tell of it.
    #[must_use]
    pub fn warnings(&self) -> Vec<SandboxWarning> {
        let message = "the settings changed; a command runs in the sandbox, which is recreated at its next use";
        self.spec_pending.then(|| SandboxWarning::new("spec_pending", message)).into_iter().collect()
    }
}

/// A program to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecCall {
    /// It and its arguments; no shell is added.
    pub command: Vec<String>,
    /// Where, beneath `/workspace`.
    pub cwd: Option<String>,
    /// Added to its environment.
    pub env: BTreeMap<String, String>,
    /// What it reads; nothing is an end at once.
    pub stdin: Option<Vec<u8>>,
    /// Its tree is ended after that time.
    pub timeout: Option<Duration>,
    /// Its tree is ended after that time without output.
    pub silence: Option<Duration>,
    /// As whom.
    pub user: ExecUser,
}

/// As whom a program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExecUser {
    /// The agent.
    #[default]
    Agent,
    /// Anybody else, which is `policy_denied`.
    Other,
}

/// How a file is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOpts {
    /// Permission bits, of which 0777 count; 0644 by default.
    pub mode: Option<u32>,
}

/// Which worker.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerCall {
    /// One that takes requests until it is closed.
    Serve,
    /// One for this request alone, which is not sent to it.
    Once(Box<WorkerRequest>),
}

/// A port of the host that leads inside, until this is dropped.
pub struct Forward {
    /// On 127.0.0.1.
    pub port: u16,
    /// Dropped with it.
    pub hold: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward").field("port", &self.port).finish_non_exhaustive()
    }
}

/// What a sandbox can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SandboxCapabilities {
    /// A worker may outlive a run.
    pub persistent_worker: bool,
    /// There is no way out but the proxy.
    pub egress_enforced: bool,
}

/// The state of a sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxHealth {
    /// Of its container.
    pub state: SandboxState,
    /// How long the guest took to answer.
    pub guest_rtt: Option<Duration>,
    /// From 1, one more for each start.
    pub generation: u64,
    /// The proxy is reached from inside.
    pub proxy_ok: bool,
    /// There is no way out but the proxy.
    pub egress_enforced: bool,
}

impl SandboxHealth {
    /// It runs, its guest answered within 2 s, and the proxy is reached.
    #[must_use]
    pub fn healthy(&self) -> bool {
        let soon = self.guest_rtt.is_some_and(|it| it <= Duration::from_secs(2));
        self.state == SandboxState::Running && soon && self.proxy_ok
    }
}

/// The state of a sandbox's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words say it")]
pub enum SandboxState {
    Running,
    Paused,
    Stopped,
    Missing,
    Unresponsive,
}

/// How a sandbox is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Teardown {
    /// Work is saved first.
    pub save: bool,
}

impl Default for Teardown {
    fn default() -> Self {
        Self { save: true }
    }
}

/// What became of a sandbox that was taken away.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TeardownReport {
    /// What is gone.
    pub removed: Vec<String>,
    /// Where work was saved.
    pub saved: Vec<String>,
    /// What could not be done; the rest was.
    pub errors: Vec<SandboxWarning>,
}
