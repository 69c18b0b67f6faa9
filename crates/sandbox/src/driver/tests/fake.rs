//! A sandbox that is played: its workers say what a script says.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use coracle_proxy::UsageTotals;

use crate::protocol::{Lines, Mode, ResponseFrame, WorkerRequest};
use crate::provider::{
    ExecCall, ExecStream, Forward, SandboxCapabilities, SandboxHealth, SandboxInfo, SandboxProvider, SandboxState,
    Teardown, TeardownReport, WorkerCall, WorkerProcess, WriteOpts,
};
use crate::{Code, Failure, Result};

/// What a worker of a script does next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FakeStep {
    /// Says a line, in which `$ID` is the id of the request that was sent last.
    Say(String),
    /// Says nothing more until something is sent.
    Wait,
    /// Says nothing more, whatever is sent.
    Hang,
    /// Is gone.
    Die,
}

/// A sandbox whose workers follow scripts. A clone is the same sandbox.
#[derive(Clone, Debug)]
pub(super) struct FakeSandboxProvider(Arc<Mutex<Played>>);

#[derive(Debug)]
struct Played {
    scripts: VecDeque<Vec<FakeStep>>,
    persistent: bool,
    generation: u64,
    metered: UsageTotals,
    spawned: Vec<WorkerCall>,
    sent: Vec<WorkerRequest>,
    closed: usize,
}

impl FakeSandboxProvider {
    /// A sandbox whose first worker follows the first script, and so on.
    pub(super) fn new(scripts: Vec<Vec<FakeStep>>) -> Self {
        Self(Arc::new(Mutex::new(Played {
            scripts: scripts.into(),
            persistent: true,
            generation: 1,
            metered: UsageTotals::default(),
            spawned: Vec::new(),
            sent: Vec::new(),
            closed: 0,
        })))
    }

    fn played(&self) -> MutexGuard<'_, Played> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on each worker is for one request.
    pub(super) fn without_persistent_workers(&self) {
        self.played().persistent = false;
    }

    /// From now on the container is another one.
    pub(super) fn recreate(&self) {
        self.played().generation += 1;
    }

    /// From now on the proxy has counted that.
    pub(super) fn meter(&self, metered: UsageTotals) {
        self.played().metered = metered;
    }

    /// Workers that were started.
    pub(super) fn spawned(&self) -> Vec<WorkerCall> {
        self.played().spawned.clone()
    }

    /// Requests that were sent.
    pub(super) fn sent(&self) -> Vec<WorkerRequest> {
        self.played().sent.clone()
    }

    /// Workers that were closed.
    pub(super) fn closed(&self) -> usize {
        self.played().closed
    }
}

#[async_trait]
impl SandboxProvider for FakeSandboxProvider {
    async fn ensure_running(&self) -> Result<SandboxInfo> {
        let generation = self.played().generation;
        let recreated = (generation > 1).then(|| "crashed".to_owned());
        Ok(SandboxInfo { id: "fake".into(), generation, image_id: "fake".into(), recreated, spec_pending: false })
    }

    async fn exec_stream(&self, _: ExecCall) -> Result<ExecStream> {
        Err(Failure::new(Code::Unsupported, "A fake sandbox runs no programs."))
    }

    async fn write_file(&self, _: &str, _: &[u8], _: WriteOpts) -> Result<u64> {
        Err(Failure::new(Code::Unsupported, "A fake sandbox has no files."))
    }

    async fn spawn_worker(&self, call: WorkerCall) -> Result<Box<dyn WorkerProcess>> {
        let mut played = self.played();
        let id = match &call {
            WorkerCall::Serve => None,
            WorkerCall::Once(request) => request.id.clone(),
        };
        played.spawned.push(call);
        let script = played.scripts.pop_front().unwrap_or_default();
        Ok(Box::new(FakeWorker { of: self.clone(), script: script.into(), id, lines: Lines::default(), ended: false }))
    }

    async fn forward(&self, _: u16) -> Result<Forward> {
        Err(Failure::new(Code::Unsupported, "A fake sandbox has no ports."))
    }

    fn resolve_cwd(&self, cwd: &str) -> Result<String> {
        if cwd == "/workspace" || cwd.starts_with("/workspace/") {
            return Ok(cwd.to_owned());
        }
        Err(Failure::new(Code::InvalidInput, format!("`{cwd}` is not beneath /workspace.")))
    }

    fn capabilities(&self) -> SandboxCapabilities {
        SandboxCapabilities { persistent_worker: self.played().persistent, egress_enforced: true }
    }

    async fn health_check(&self) -> SandboxHealth {
        let (state, generation) = (SandboxState::Running, self.played().generation);
        let guest_rtt = Some(std::time::Duration::ZERO);
        SandboxHealth { state, guest_rtt, generation, proxy_ok: true, egress_enforced: true }
    }

    fn metered(&self) -> UsageTotals {
        self.played().metered
    }

    async fn teardown(&self, _: Teardown) -> TeardownReport {
        TeardownReport { removed: vec!["fake".into()], ..TeardownReport::default() }
    }
}

struct FakeWorker {
    of: FakeSandboxProvider,
    script: VecDeque<FakeStep>,
    id: Option<String>,
    lines: Lines,
    ended: bool,
}

impl fmt::Debug for FakeWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeWorker").field("script", &self.script).finish_non_exhaustive()
    }
}

#[async_trait]
impl WorkerProcess for FakeWorker {
    async fn send(&mut self, request: &WorkerRequest) -> Result<()> {
        crate::protocol::encode(request)?;
        if self.ended {
            return Err(Failure::new(Code::WorkerDied, "The worker is gone."));
        }
        self.of.played().sent.push(request.clone());
        if request.mode != Mode::Cancel {
            self.id.clone_from(&request.id);
        }
        if self.script.front() == Some(&FakeStep::Wait) {
            self.script.pop_front();
        }
        Ok(())
    }

    async fn recv(&mut self) -> Result<Option<ResponseFrame>> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                return ResponseFrame::parse(line).map(Some);
            }
            match self.script.front() {
                Some(FakeStep::Say(line)) => {
                    let line = line.replace("$ID", self.id.as_deref().unwrap_or_default());
                    self.script.pop_front();
                    self.lines.push(format!("{line}\n").as_bytes());
                }
                Some(FakeStep::Wait | FakeStep::Hang) => std::future::pending().await,
                Some(FakeStep::Die) | None => {
                    self.ended = true;
                    return Ok(None);
                }
            }
        }
    }

    async fn close(&mut self) -> Result<()> {
        self.ended = true;
        self.of.played().closed += 1;
        Ok(())
    }

    fn alive(&self) -> bool {
        !self.ended
    }
}
