//! The host's side of a worker: one run after the other, each a stream of events.
//!
//! **Invariant:** what a run says is held against its protocol; a worker that breaks it is closed, so that no later run
//! sees a frame of an earlier one.
//! **Invariant:** when the receiver of a run is dropped, the run is cancelled inside, and its worker is done or closed.
//! **Invariant:** nothing is repeated by itself: a run that broke off may have changed files.

mod event;
mod one_shot;
mod process;
mod run;
#[cfg(test)]
mod tests;

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use coracle_proxy::UsageTotals;
use coracle_types::{SandboxWarning, random_hex};
use futures_util::{Stream, StreamExt as _};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

pub use self::event::Event;
pub use self::one_shot::LinkOnce;
pub use self::process::{LinkWorker, WorkerStart};
use self::run::{FrameOutcome, Run};
use crate::protocol::{Mode, RunLimits, Usage, WorkerRequest};
use crate::provider::{SandboxInfo, SandboxProvider, WorkerCall, WorkerProcess};
use crate::schema::Schema;
use crate::{Code, Failure, Result};

/// Events that wait for who listens; more of them make the worker wait.
const WAITING: usize = 64;

/// A run that was cancelled is over by then, or its worker is closed.
const CANCELLED: Duration = Duration::from_secs(5);

/// A run with tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AgenticRequest {
    /// The task.
    pub prompt: String,
    /// Another model than the driver's.
    pub model: Option<String>,
    /// Where; `/workspace` by default. A directory of the host is taken as the one inside that it is.
    pub cwd: Option<String>,
    /// More for the system text.
    pub instructions: Option<String>,
    /// The shape of the result.
    pub schema: Option<Value>,
    /// A file beneath `/workspace` or `/tmp` with the shape of the result.
    pub schema_path: Option<String>,
    /// Names of the tools that are given; nothing is all of them.
    pub tools: Option<Vec<String>>,
    /// When it is ended.
    pub limits: Option<RunLimits>,
    /// Echoed in every message.
    pub session_id: Option<String>,
    /// The id of the run in its events; made up when missing.
    pub run_id: Option<String>,
}

/// One text, or one JSON value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerateRequest {
    /// The task.
    pub prompt: String,
    /// Another model than the driver's.
    pub model: Option<String>,
    /// More for the system text.
    pub instructions: Option<String>,
    /// The shape of the answer.
    pub schema: Option<Value>,
    /// A file beneath `/workspace` or `/tmp` with the shape of the answer.
    pub schema_path: Option<String>,
    /// When it is ended.
    pub limits: Option<RunLimits>,
}

/// What was generated.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateResponse {
    /// The text, or compact JSON where a schema was given.
    pub content: String,
    /// The JSON, where a schema was given.
    pub value: Option<Value>,
}

/// Drives the workers of one sandbox. One run at a time; others wait.
#[derive(Debug)]
pub struct SandboxDriver {
    shared: Arc<DriverInner>,
    model: String,
}

#[derive(Debug)]
struct DriverInner {
    provider: Arc<dyn SandboxProvider>,
    /// The worker that serves, with the generation it was started in.
    worker: tokio::sync::Mutex<Option<(Box<dyn WorkerProcess>, u64)>>,
    usage: Mutex<Option<Usage>>,
}

/// The events of a run. To drop it ends the run inside, within 5 s or with its worker.
#[derive(Debug)]
pub struct Events {
    events: mpsc::Receiver<Result<Event>>,
    _guard: DropGuard,
}

impl Stream for Events {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        self.events.poll_recv(cx)
    }
}

impl SandboxDriver {
    /// A driver of that sandbox. The model is taken where a request names none.
    pub fn new(provider: Arc<dyn SandboxProvider>, model: impl Into<String>) -> Self {
        let shared = DriverInner { provider, worker: tokio::sync::Mutex::default(), usage: Mutex::default() };
        Self { shared: Arc::new(shared), model: model.into() }
    }

    /// Begins a run. Its last event is its result, or its last item an error.
    #[must_use]
    pub fn run_agentic(&self, request: AgenticRequest) -> Events {
        let model = request.model.unwrap_or_else(|| self.model.clone());
        self.begin(WorkerRequest {
            prompt: Some(request.prompt),
            model: Some(model),
            cwd: request.cwd,
            instructions: request.instructions,
            schema: request.schema,
            schema_path: request.schema_path,
            tools: request.tools,
            limits: request.limits,
            session_id: request.session_id,
            ..WorkerRequest::new(Mode::Agentic, &request.run_id.unwrap_or_else(random_hex::<16>))
        })
    }

    /// One text, or one JSON value of a shape.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn generate(&self, request: GenerateRequest) -> Result<GenerateResponse> {
        let has_schema = request.schema.is_some() || request.schema_path.is_some();
        let mut events = self.begin(WorkerRequest {
            prompt: Some(request.prompt),
            model: Some(request.model.unwrap_or_else(|| self.model.clone())),
            instructions: request.instructions,
            schema: request.schema,
            schema_path: request.schema_path,
            limits: request.limits,
            ..WorkerRequest::new(Mode::Generate, &random_hex::<16>())
        });
        let mut result = None;
        while let Some(event) = events.next().await {
            if let Event::Result { content, .. } = event? {
                result = Some(content);
            }
        }
        let content = result.ok_or_else(run::no_result)?;
        // It was read as JSON before it became an event.
        let value = if has_schema { serde_json::from_str(&content).ok() } else { None };
        Ok(GenerateResponse { content, value })
    }

    /// What the last run that was finished took, as its worker tells it.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        self.shared.usage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the proxy counted.
    #[must_use]
    pub fn metered(&self) -> UsageTotals {
        self.shared.provider.metered()
    }

    /// Ends the worker, when the run that is under way is over.
    ///
    /// # Errors
    /// It is not known to be gone.
    pub async fn close(&self) -> Result<()> {
        match self.shared.worker.lock().await.take() {
            Some((mut worker, _)) => worker.close().await,
            None => Ok(()),
        }
    }

    fn begin(&self, request: WorkerRequest) -> Events {
        let (sender, events) = mpsc::channel(WAITING);
        let cancel = CancellationToken::new();
        let _guard = cancel.clone().drop_guard();
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let mut driven = Driven { shared: &shared, sender, cancel };
            let done = driven.drive(request).await;
            // A dropped receiver gets nothing more.
            let _ = match done {
                Ok(Some(result)) => driven.sender.send(Ok(result)).await,
                Ok(None) => Ok(()),
                Err(failure) => driven.sender.send(Err(failure)).await,
            };
        });
        Events { events, _guard }
    }
}

/// One run on its way.
struct Driven<'a> {
    shared: &'a DriverInner,
    sender: mpsc::Sender<Result<Event>>,
    cancel: CancellationToken,
}

impl Driven<'_> {
    /// The result, or nothing when the receiver is dropped.
    async fn drive(&mut self, mut request: WorkerRequest) -> Result<Option<Event>> {
        let cancel = self.cancel.clone();
        let Some(ready) = cancel.run_until_cancelled(self.prepare(&mut request)).await else { return Ok(None) };
        let (info, schema) = ready?;
        let Some(mut place) = cancel.run_until_cancelled(self.shared.worker.lock()).await else { return Ok(None) };
        let (mut worker, spawned) = self.worker(place.take(), &request, &info).await?;
        let run = Run::new(request.id.clone().unwrap_or_default(), schema);
        let done = self.follow(run, &mut worker, &request, &info).await;
        match done {
            Ok((result, true)) if self.shared.provider.capabilities().persistent_worker => {
                *place = Some((worker, spawned));
                result
            }
            Ok((result, _)) => {
                // The worker has ended, or its failure is reported elsewhere.
                let _ = worker.close().await;
                result
            }
            Err(failure) => {
                let _ = worker.close().await;
                Err(failure)
            }
        }
    }

    /// Checks before the first message.
    async fn prepare(&self, request: &mut WorkerRequest) -> Result<(SandboxInfo, Option<Schema>)> {
        if request.prompt.as_ref().is_none_or(|it| it.trim().is_empty()) {
            return Err(Failure::new(Code::InvalidInput, "Prompt cannot be empty"));
        }
        if request.schema.is_some() && request.schema_path.is_some() {
            return Err(Failure::new(Code::InvalidRequest, "Give a schema or the path of one, not both."));
        }
        let schema = request.schema.clone().map(Schema::new).transpose()?;
        let info = self.shared.provider.ensure_running().await?;
        let cwd = request.cwd.as_deref().unwrap_or("/workspace");
        request.cwd = Some(self.shared.provider.resolve_cwd(cwd)?);
        Ok((info, schema))
    }

    /// The worker that serves this sandbox already, or a new one.
    async fn worker(
        &self,
        held: Option<(Box<dyn WorkerProcess>, u64)>,
        request: &WorkerRequest,
        info: &SandboxInfo,
    ) -> Result<(Box<dyn WorkerProcess>, u64)> {
        let provider = &self.shared.provider;
        match held {
            Some((worker, generation)) if worker.alive() && generation == info.generation => {
                return Ok((worker, generation));
            }
            Some((mut worker, _)) => drop(worker.close().await),
            None => {}
        }
        let call = match provider.capabilities().persistent_worker {
            true => WorkerCall::Serve,
            false => WorkerCall::Once(Box::new(request.clone())),
        };
        Ok((provider.spawn_worker(call).await?, info.generation))
    }

    /// Sends the request and receives messages until its end. Returns whether the worker can accept another request.
    async fn follow(
        &mut self,
        mut run: Run,
        worker: &mut Box<dyn WorkerProcess>,
        request: &WorkerRequest,
        info: &SandboxInfo,
    ) -> Result<(Result<Option<Event>>, bool)> {
        if self.shared.provider.capabilities().persistent_worker {
            let cancel = self.cancel.clone();
            match cancel.run_until_cancelled(worker.send(request)).await {
                Some(sent) => sent?,
                // Half a request may be under way, after which nothing can follow.
                None => return Ok((Ok(None), false)),
            }
        }
        let (run_id, recreated) = (request.id.clone().unwrap_or_default(), info.recreated.clone());
        let mut listening = self.send_event(Event::Started { run_id, generation: info.generation, recreated }).await;
        for SandboxWarning { code, message } in info.warnings() {
            listening = listening && self.send_event(Event::Warning { code, message }).await;
        }
        while listening {
            let cancel = self.cancel.clone();
            let Some(frame) = cancel.run_until_cancelled(worker.recv()).await else { break };
            let frame = frame.map_err(|failure| run.broken(failure))?.ok_or_else(|| run.died())?;
            match run.take(frame).map_err(|failure| run.broken(failure))? {
                FrameOutcome::Nothing => {}
                FrameOutcome::Event(event) => listening = self.send_event(event).await,
                FrameOutcome::Over(result) => {
                    *self.shared.usage.lock().unwrap_or_else(PoisonError::into_inner) = run.usage();
                    return Ok((result.map(Some), worker.alive()));
                }
            }
        }
        let ended = timeout(CANCELLED, cancel(&mut run, worker)).await;
        Ok((Ok(None), matches!(ended, Ok(Ok(()))) && worker.alive()))
    }

    async fn send_event(&self, event: Event) -> bool {
        let cancel = self.cancel.clone();
        cancel.run_until_cancelled(self.sender.send(Ok(event))).await.is_some_and(|it| it.is_ok())
    }
}

/// Ends the run inside and hears it out.
async fn cancel(run: &mut Run, worker: &mut Box<dyn WorkerProcess>) -> Result<()> {
    worker.send(&WorkerRequest::new(Mode::Cancel, run.id())).await?;
    loop {
        let frame = worker.recv().await?.ok_or_else(|| run.died())?;
        if let FrameOutcome::Over(_) = run.take(frame)? {
            return Ok(());
        }
    }
}
