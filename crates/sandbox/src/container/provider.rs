//! A sandbox in a container, as drivers use it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use coracle_client::{Link, WriteFile};
use coracle_lifecycle::EndReason;
use coracle_protocol::{FileRef, UserSpec};
use coracle_proxy::{UsageTotals, Wall};
use coracle_types::{Chunk, Command, ContainerPath, Exec, ExecLimits, Ids, Input, SandboxWarning, Stream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Sandbox;
use super::forward::forward;
use super::sandbox_proxy::{ProxyLease, SandboxProxy};
use crate::driver::{LinkOnce, LinkWorker, WorkerStart};
use crate::provider::{
    ExecCall, ExecStream, ExecUser, Forward, Frame, SandboxCapabilities, SandboxHealth, SandboxInfo, SandboxProvider,
    SandboxState, Teardown, TeardownReport, WorkerCall, WorkerProcess, WriteOpts,
};
use crate::{Code, Failure, Result, RunningContainer, SandboxLiveness};

/// The working directory of programs inside, which has none of their files on the host.
const ROOT: &str = "/workspace";

/// Bytes of a file that is written.
const MAX_FILE: usize = 64 << 20;

/// Pieces of output that wait for who reads them.
const WAITING: usize = 64;

/// Output of the agent's programs is streamed without a limit; this much of it is also retained.
const RETAINED: usize = 64 << 10;

/// A sandbox in a container. From its first use to its end this process keeps the sandbox's way out, unless another one
/// does.
#[derive(Debug)]
pub struct ContainerSandboxProvider {
    sandbox: Sandbox,
    proxy: Arc<SandboxProxy>,
    /// From the first use on.
    open: Mutex<Option<ProxyLease>>,
    /// What every command finds in its environment.
    env: BTreeMap<String, String>,
    /// How the network is described to a model.
    network: String,
    /// The directory of this host that the root is, where it is one.
    shared: Option<PathBuf>,
    /// Each run has a worker of its own.
    one_shot: bool,
}

impl ContainerSandboxProvider {
    /// One for that sandbox and its way out.
    #[must_use]
    pub fn new(sandbox: Sandbox, proxy: Arc<SandboxProxy>, env: BTreeMap<String, String>, network: String) -> Self {
        Self { sandbox, proxy, open: Mutex::default(), env, network, shared: None, one_shot: false }
    }

    /// Its root is a directory of this host.
    #[must_use]
    pub fn shared(self, dir: PathBuf) -> Self {
        Self { shared: Some(dir), ..self }
    }

    /// Each run has a worker of its own, which ends with it: nothing of one run is in the memory of the next.
    #[must_use]
    pub fn one_shot(self) -> Self {
        Self { one_shot: true, ..self }
    }

    /// As [`SandboxProvider::forward`], from that port of 127.0.0.1.
    ///
    /// # Errors
    /// `invalid_input` for a port that cannot be had.
    pub async fn forward_at(&self, guest_port: u16, host_port: u16) -> Result<Forward> {
        forward(self.sandbox.clone(), self.proxy.clone(), guest_port, host_port).await
    }

    async fn held(&self) -> Result<RunningContainer> {
        let open = self.proxy.open()?;
        self.open.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(open);
        self.sandbox.ensure().await
    }

    fn exec(&self, call: ExecCall) -> Result<Exec> {
        if call.user != ExecUser::Agent {
            let failure = Failure::new(Code::PolicyDenied, "Commands in a sandbox run as its agent.");
            return Err(failure.detail("rule", "sandbox.user"));
        }
        let cwd = ContainerPath::parse(self.resolve_cwd(call.cwd.as_deref().unwrap_or(ROOT))?);
        let cwd = cwd.map_err(|err| Failure::new(Code::InvalidInput, err.to_string()))?;
        let limits = ExecLimits { total: call.timeout, silence: call.silence, ..ExecLimits::default() };
        Ok(Exec {
            env: self.env.clone().into_iter().chain(call.env).collect(),
            stdin: call.stdin.map(Input::Bytes),
            limits,
            keep_bytes: RETAINED,
            passes_on: Some(usize::MAX),
            ..Exec::new(Command::Argv(call.command), self.sandbox.agent(), cwd)
        })
    }
}

#[async_trait]
impl SandboxProvider for ContainerSandboxProvider {
    async fn ensure_running(&self) -> Result<SandboxInfo> {
        Ok(self.held().await?.info)
    }

    async fn exec_stream(&self, call: ExecCall) -> Result<ExecStream> {
        let exec = self.exec(call)?;
        let held = self.held().await?;
        let (sender, frames) = mpsc::channel(WAITING);
        let cancel = CancellationToken::new();
        tokio::spawn(run(held, Exec { cancel: cancel.clone(), ..exec }, sender));
        Ok(ExecStream::new(frames, cancel))
    }

    async fn write_file(&self, path: &str, content: &[u8], opts: WriteOpts) -> Result<u64> {
        let failed = |why: String| Failure::new(Code::WriteFailed, format!("The file was not written: {why}."));
        if content.len() > MAX_FILE {
            return Err(failed(format!("{} bytes; at most {MAX_FILE} are taken", content.len())));
        }
        let at = ContainerPath::parse(path).map_err(|err| failed(err.to_string()))?;
        if ![ROOT, "/tmp"].iter().any(|root| at.as_str() != *root && at.is_beneath(root)) {
            return Err(failed("it lies neither beneath /workspace nor beneath /tmp".into()));
        }
        let held = self.held().await?;
        let user = who(self.sandbox.agent());
        let put = WriteFile {
            at: FileRef { user: user.clone(), path: at.to_string(), follow: false },
            mode: Some(opts.mode.unwrap_or(0o644) & 0o777),
            exact: true,
            parents: true,
            replace: true,
            content: Input::Bytes(content.to_vec()),
        };
        held.link.put(put).await.map_err(|err| failed(err.to_string()))?;
        let at = FileRef { user, path: at.to_string(), follow: false };
        Ok(held.link.stat(at).await.map_err(|err| failed(err.to_string()))?.size)
    }

    async fn spawn_worker(&self, call: WorkerCall) -> Result<Box<dyn WorkerProcess>> {
        let held = self.held().await?;
        let root = ContainerPath::parse(ROOT).map_err(Failure::internal)?;
        let let_in = held.link.open_worker_socket(self.sandbox.worker(), self.sandbox.agent(), &root).await;
        let_in.map_err(|err| Failure::new(Code::WorkerDied, format!("The worker is not let in: {err}.")))?;
        let token = self.sandbox.admit_worker().await?;
        let start = WorkerStart {
            program: ContainerPath::parse(WorkerStart::PROGRAM).map_err(Failure::internal)?,
            user: self.sandbox.worker(),
            proxy_url: coracle_proxy::environment::LLM_URL.to_owned(),
            network: self.network.clone(),
            token: token.clone(),
        };
        let worker: Box<dyn WorkerProcess> = match call {
            WorkerCall::Serve => Box::new(LinkWorker::spawn(&held.link, start)),
            WorkerCall::Once(request) => match LinkOnce::spawn(&held.link, start, &request).await {
                Ok(worker) => Box::new(worker),
                Err(failure) => {
                    self.sandbox.dismiss_worker(&token).await?;
                    return Err(failure);
                }
            },
        };
        Ok(Box::new(AuthorizedWorker {
            worker,
            _held: held,
            sandbox: self.sandbox.clone(),
            proxy: self.proxy.clone(),
            token,
        }))
    }

    async fn forward(&self, guest_port: u16) -> Result<Forward> {
        self.forward_at(guest_port, 0).await
    }

    fn resolve_cwd(&self, cwd: &str) -> Result<String> {
        inside(self.shared.as_deref(), cwd)
    }

    fn capabilities(&self) -> SandboxCapabilities {
        SandboxCapabilities { persistent_worker: !self.one_shot, egress_enforced: self.sandbox.wall().is_some() }
    }

    async fn health_check(&self) -> SandboxHealth {
        let state = match self.sandbox.liveness().await {
            Ok(SandboxLiveness::Ready) => SandboxState::Running,
            Ok(SandboxLiveness::Unresponsive) => SandboxState::Stopped,
            Ok(SandboxLiveness::Absent) | Err(_) => SandboxState::Missing,
        };
        let (mut rtt, mut generation, mut proxy_ok) = (None, 0, false);
        if state == SandboxState::Running
            && let Ok(held) = self.held().await
        {
            (rtt, generation) = (pinged(&held.link, self.sandbox.agent()).await, held.info.generation);
            let (gateways, has_network) = (self.sandbox.wall(), self.sandbox.has_network());
            let wall = gateways.as_deref().map(|gateways| Wall { gateways, has_network });
            proxy_ok = coracle_proxy::self_test(&held.link, wall).await.is_ok();
        }
        SandboxHealth { state, guest_rtt: rtt, generation, proxy_ok, egress_enforced: self.sandbox.wall().is_some() }
    }

    fn metered(&self) -> UsageTotals {
        self.proxy.metered()
    }

    async fn teardown(&self, _: Teardown) -> TeardownReport {
        // Work is saved worktree by worktree, by who knows them.
        self.proxy.close();
        match self.sandbox.remove(EndReason::Command).await {
            Ok(()) => {
                TeardownReport { removed: vec![self.sandbox.dir().key().to_string()], ..TeardownReport::default() }
            }
            Err(err) => {
                let errors = vec![SandboxWarning::new(&err.code.word(), err.message)];
                TeardownReport { errors, ..TeardownReport::default() }
            }
        }
    }
}

/// A path below the root, or a host path below the root's directory.
fn inside(shared: Option<&Path>, cwd: &str) -> Result<String> {
    let below = shared.and_then(|it| Path::new(cwd).strip_prefix(it).ok()?.to_str());
    let of_host = below.map(|it| format!("{ROOT}/{it}"));
    let cwd = of_host.as_deref().map_or(cwd, |it| it.trim_end_matches('/'));
    let path = ContainerPath::parse(cwd).map_err(|err| Failure::new(Code::InvalidInput, err.to_string()))?;
    if path.as_str() == ROOT || path.is_beneath(ROOT) {
        return Ok(path.to_string());
    }
    Err(Failure::new(Code::InvalidInput, format!("`{path}` does not lie beneath {ROOT}.")))
}

fn who(ids: Ids) -> UserSpec {
    UserSpec::Ids { uid: ids.uid, gid: Some(ids.gid) }
}

async fn pinged(link: &Link, agent: Ids) -> Option<Duration> {
    let began = Instant::now();
    let root = FileRef { user: who(agent), path: ROOT.into(), follow: true };
    link.stat(root).await.is_ok().then(|| began.elapsed())
}

/// Runs a program and passes on what it says, its exit last.
async fn run(held: RunningContainer, exec: Exec, sender: mpsc::Sender<Result<Frame>>) {
    let (live, mut chunks) = mpsc::channel::<Chunk>(WAITING);
    let exec = Exec { live: Some(live), ..exec };
    let passing = async {
        while let Some(chunk) = chunks.recv().await {
            let frame = match chunk.stream {
                Stream::Stdout => Frame::Stdout(chunk.bytes.to_vec()),
                Stream::Stderr => Frame::Stderr(chunk.bytes.to_vec()),
            };
            if sender.send(Ok(frame)).await.is_err() {
                return;
            }
        }
    };
    let (ended, ()) = tokio::join!(held.link.exec(exec), passing);
    let last = match ended {
        Ok(output) => Ok(Frame::Exit(output.exit)),
        Err(err) => Err(lost(&err)),
    };
    let _ = sender.send(last).await;
}

fn lost(err: &coracle_types::Error) -> Failure {
    use coracle_types::Error;

    match err {
        Error::GuestLost { .. }
        | Error::GuestFailed { .. }
        | Error::GuestVersion { .. }
        | Error::FilesRemoved { .. }
        | Error::NotRunning { .. }
        | Error::LifetimeOver { .. }
        | Error::NodeLost { .. }
        | Error::NoSuchContainer(_) => Failure::new(Code::SandboxLost, format!("The sandbox was lost: {err}.")),
        err => Failure::new(Code::CommandFailed, err.to_string()),
    }
}

/// A worker with its own token, which becomes invalid when the worker ends.
#[derive(Debug)]
struct AuthorizedWorker {
    worker: Box<dyn WorkerProcess>,
    _held: RunningContainer,
    sandbox: Sandbox,
    proxy: Arc<SandboxProxy>,
    token: coracle_types::Secret,
}

#[async_trait]
impl WorkerProcess for AuthorizedWorker {
    async fn send(&mut self, request: &crate::protocol::WorkerRequest) -> Result<()> {
        self.worker.send(request).await
    }

    async fn recv(&mut self) -> Result<Option<crate::protocol::ResponseFrame>> {
        self.worker.recv().await
    }

    async fn close(&mut self) -> Result<()> {
        let closed = self.worker.close().await;
        self.proxy.note();
        self.sandbox.dismiss_worker(&self.token).await?;
        closed
    }

    fn alive(&self) -> bool {
        self.worker.alive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_host_is_the_same_place_inside() {
        let shared = Some(Path::new("/home/me/agents/k"));
        let resolved = |cwd: &str| inside(shared, cwd).ok();
        for (cwd, expected) in [
            ("/home/me/agents/k/worktrees/a", Some("/workspace/worktrees/a")),
            ("/home/me/agents/k", Some("/workspace")),
            ("/workspace/worktrees/a", Some("/workspace/worktrees/a")),
            ("/home/me/agents/kk", None),
            ("/home/me/agents", None),
            ("/home/me/agents/k/../other", None),
            ("worktrees/a", None),
        ] {
            assert_eq!(resolved(cwd).as_deref(), expected, "{cwd}");
        }
        assert!(inside(None, "/home/me/agents/k").is_err());
    }
}
