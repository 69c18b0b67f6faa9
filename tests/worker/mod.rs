//! The worker: in this process where the fake plays the container, and as the static program in real ones.

mod apart;
mod ending;
mod images;
mod model;
mod once;
mod program;
mod runs;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::Link;
use coracle_protocol::EnsureUser;
use coracle_proxy::UsageTotals;
use coracle_proxy::token::fresh_token;
use coracle_sandbox::driver::{AgenticRequest, Event, LinkOnce, LinkWorker, SandboxDriver, WorkerStart};
use coracle_sandbox::protocol::{Lines, ResponseFrame, WorkerRequest, encode};
use coracle_sandbox::provider::{
    ExecCall, ExecStream, Forward, SandboxCapabilities, SandboxHealth, SandboxInfo, SandboxProvider, Teardown,
    TeardownReport, WorkerCall, WorkerProcess, WriteOpts,
};
use coracle_sandbox::{Code, Failure, Result};
use coracle_types::{ContainerPath, Ids, ImageId, Secret};
use coracle_worker::{ProxyUrl, RetryPolicy, Worker, WorkerSettings, serve};
use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_util::sync::CancellationToken;

use crate::engines::{Case, Running, Way, on_every_engine, with_real_engines};
use crate::servers::model::ModelServer;

const WORKER: Ids = Ids { uid: 10_001, gid: 10_001 };
const AGENT: Ids = Ids { uid: 10_002, gid: 10_002 };

/// A container with a worker, its driver and its model.
pub(crate) struct Bench<'a> {
    pub(crate) driver: SandboxDriver,
    pub(crate) model: ModelServer,
    pub(crate) running: Running<'a>,
    /// Workers that were started.
    pub(crate) spawned: Arc<AtomicUsize>,
    pub(crate) token: String,
}

/// On the fake and on every real engine, in a busybox.
pub(crate) async fn with_worker(check: impl AsyncFn(&Bench<'_>)) {
    on_every_engine(async |case| {
        if case.engine() == coracle_types::EngineKind::Container {
            return case.left_out();
        }
        check(&Bench::new(case, "worker", &case.image).await).await;
    })
    .await;
}

/// The same on every real engine, with a worker for each run.
pub(crate) async fn with_one_shot_workers(check: impl AsyncFn(&Bench<'_>)) {
    with_real_engines(async |case| check(&Bench::of(case, ("once", &case.image), true).await).await).await;
}

impl<'a> Bench<'a> {
    pub(crate) async fn new(case: &'a Case, name: &str, image: &ImageId) -> Self {
        Self::of(case, (name, image), false).await
    }

    async fn of(case: &'a Case, (name, image): (&str, &ImageId), one_shot: bool) -> Self {
        let model = ModelServer::start().await;
        let running = match case.is_real() {
            true => case.runs_with_worker(name, image).await,
            false => case.runs(Way::Socket).await,
        };
        let link = running.link().clone();
        let agent = if case.is_real() { AGENT } else { myself() };
        let workdir = "/workspace".to_owned();
        link.ensure_user(EnsureUser { uid: agent.uid, gid: agent.gid, workdir, bound: vec![] }).await.unwrap();
        if case.is_real() {
            link.open_worker_socket(WORKER, AGENT, &root()).await.unwrap();
        }
        let (token, spawned) = (fresh_token(), Arc::<AtomicUsize>::default());
        let seen = String::from_utf8(token.reveal().to_vec()).unwrap();
        let real = case.is_real();
        let provider = Provider { link, url: model.url(), token, spawned: spawned.clone(), agent, real, one_shot };
        let driver = SandboxDriver::new(Arc::new(provider), "scripted");
        Self { driver, model, running, spawned, token: seen }
    }

    /// The events of a run, and how it failed.
    pub(crate) async fn run(&self, request: AgenticRequest) -> (Vec<Event>, Option<Failure>) {
        let (mut events, mut failure) = (Vec::new(), None);
        let mut stream = self.driver.run_agentic(request);
        while let Some(item) = stream.next().await {
            match item {
                Ok(event) => events.push(event),
                Err(err) => failure = Some(err),
            }
        }
        (events, failure)
    }

    /// A run that ends well: its events without the first.
    pub(crate) async fn runs(&self, request: AgenticRequest) -> Vec<Event> {
        let (mut events, failure) = self.run(request).await;
        assert_eq!(failure, None);
        assert!(matches!(events.remove(0), Event::Started { .. }));
        events
    }

    /// A run that fails.
    pub(crate) async fn fails(&self, request: AgenticRequest) -> Failure {
        let (events, failure) = self.run(request).await;
        assert!(!events.iter().any(|it| matches!(it, Event::Result { .. })), "{events:?}");
        failure.unwrap_or_else(|| panic!("it did not fail: {events:?}"))
    }

    pub(crate) fn workers(&self) -> usize {
        self.spawned.load(Ordering::Relaxed)
    }
}

pub(crate) fn ask(prompt: &str) -> AgenticRequest {
    AgenticRequest { prompt: prompt.into(), ..AgenticRequest::default() }
}

pub(crate) fn root() -> ContainerPath {
    ContainerPath::parse("/workspace").unwrap()
}

fn myself() -> Ids {
    Ids { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

/// The waits before retries of a provider, short enough for a test.
fn patience() -> RetryPolicy {
    RetryPolicy { first: Duration::from_millis(5), ..RetryPolicy::default() }
}

/// One existing container.
struct Provider {
    link: Link,
    url: String,
    token: Secret,
    spawned: Arc<AtomicUsize>,
    agent: Ids,
    real: bool,
    one_shot: bool,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Provider")
    }
}

#[async_trait]
impl SandboxProvider for Provider {
    async fn ensure_running(&self) -> Result<SandboxInfo> {
        Ok(SandboxInfo {
            id: "one".into(),
            generation: 1,
            image_id: "image".into(),
            recreated: None,
            spec_pending: false,
        })
    }

    async fn exec_stream(&self, _: ExecCall) -> Result<ExecStream> {
        Err(Failure::new(Code::Unsupported, "not here"))
    }

    async fn write_file(&self, _: &str, _: &[u8], _: WriteOpts) -> Result<u64> {
        Err(Failure::new(Code::Unsupported, "not here"))
    }

    async fn spawn_worker(&self, call: WorkerCall) -> Result<Box<dyn WorkerProcess>> {
        self.spawned.fetch_add(1, Ordering::Relaxed);
        if !self.real {
            let settings = WorkerSettings {
                proxy: Some(ProxyUrl::parse(&self.url)?),
                token: Some(self.token.clone()),
                network: "none".into(),
                root: root(),
                agent: self.agent,
                patience: patience(),
            };
            return Ok(Box::new(InProcess::spawn(Worker::new(settings, self.link.clone()))));
        }
        let start = WorkerStart {
            program: ContainerPath::parse(WorkerStart::PROGRAM).unwrap(),
            user: WORKER,
            proxy_url: self.url.clone(),
            network: "none".into(),
            token: self.token.clone(),
        };
        match call {
            WorkerCall::Serve => Ok(Box::new(LinkWorker::spawn(&self.link, start))),
            WorkerCall::Once(request) => Ok(Box::new(LinkOnce::spawn(&self.link, start, &request).await?)),
        }
    }

    async fn forward(&self, _: u16) -> Result<Forward> {
        Err(Failure::new(Code::Unsupported, "not here"))
    }

    fn resolve_cwd(&self, cwd: &str) -> Result<String> {
        Ok(cwd.to_owned())
    }

    fn capabilities(&self) -> SandboxCapabilities {
        SandboxCapabilities { persistent_worker: !self.one_shot, egress_enforced: true }
    }

    async fn health_check(&self) -> SandboxHealth {
        unreachable!("no test asks")
    }

    fn metered(&self) -> UsageTotals {
        UsageTotals::default()
    }

    async fn teardown(&self, _: Teardown) -> TeardownReport {
        TeardownReport::default()
    }
}

/// A worker in this process, spoken to as one in a container is.
#[derive(Debug)]
pub(crate) struct InProcess {
    to: Option<DuplexStream>,
    from: DuplexStream,
    lines: Lines,
    quit: CancellationToken,
}

impl InProcess {
    pub(crate) fn spawn(worker: Worker) -> Self {
        let (to, input) = tokio::io::duplex(1 << 16);
        let (output, from) = tokio::io::duplex(1 << 16);
        let quit = CancellationToken::new();
        let fired = quit.clone();
        tokio::spawn(async move { serve(&worker, input, output, fired).await });
        Self { to: Some(to), from, lines: Lines::default(), quit }
    }
}

#[async_trait]
impl WorkerProcess for InProcess {
    async fn send(&mut self, request: &WorkerRequest) -> Result<()> {
        let bytes = encode(request)?;
        self.to.as_mut().unwrap().write_all(&bytes).await.map_err(Failure::internal)
    }

    async fn recv(&mut self) -> Result<Option<ResponseFrame>> {
        loop {
            if let Some(line) = self.lines.next_line()? {
                return ResponseFrame::parse(line).map(Some);
            }
            let mut piece = vec![0; 4096];
            match self.from.read(&mut piece).await.map_err(Failure::internal)? {
                0 => return Ok(None),
                count => self.lines.push(&piece[..count]),
            }
        }
    }

    async fn close(&mut self) -> Result<()> {
        self.to = None;
        self.quit.cancel();
        Ok(())
    }

    fn alive(&self) -> bool {
        self.to.is_some()
    }
}
