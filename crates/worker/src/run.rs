//! One run, from its request to its last message.

use std::time::{Duration, Instant};

use coracle_sandbox::protocol::{Mode, WorkerMessage, WorkerRequest};
use coracle_sandbox::{Code, Failure, Result};
use tokio::sync::mpsc;

use crate::Worker;
use crate::agent::{RunContext, agentic, generate};
use crate::events::EventSink;
use crate::llm::{Llm, Meter};
use crate::schema_file::schema;
use crate::stop::StopSignal;

/// Default limit of a run, in seconds.
const DEFAULT_SECONDS: u64 = 1800;

/// Runs a request and reports progress. The messages always end with `result` and `usage`.
///
/// # Errors
/// The failure of the run, as in its `result`.
pub(crate) async fn run(
    worker: &Worker,
    request: &WorkerRequest,
    to: mpsc::Sender<WorkerMessage>,
    stop: &StopSignal,
) -> Result<()> {
    let (begun, mut meter) = (Instant::now(), Meter::default());
    let model = request.model.clone().unwrap_or_default();
    let mut reporter = EventSink::new(to, request.session_id.clone(), model.clone());
    let seconds = request.limits.and_then(|it| it.wall_seconds).unwrap_or(DEFAULT_SECONDS);
    let result = {
        let doing = go(worker, request, &mut reporter, &mut meter, stop);
        tokio::pin!(doing);
        tokio::select! {
            result = &mut doing => result,
            () = tokio::time::sleep(Duration::from_secs(seconds)) => {
                stop.fire(Code::WallLimit, format!("Stopped after {seconds} seconds."));
                doing.await
            }
        }
    };
    let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    reporter.end(&result, meter.usage(&model, took)).await;
    result.map(drop)
}

async fn go(
    worker: &Worker,
    request: &WorkerRequest,
    reporter: &mut EventSink,
    meter: &mut Meter,
    stop: &StopSignal,
) -> Result<String> {
    let no_proxy = || {
        Failure::new(Code::ProxyRequired, "LLM_PROXY_URL is not set: a worker calls a model only through the proxy.")
    };
    let url = worker.settings.proxy.as_ref().ok_or_else(no_proxy)?;
    let schema = stop.unless(schema(worker, request)).await??;
    let llm = Llm::new(url, worker.settings.token.as_ref(), worker.settings.patience);
    let cx = RunContext { worker, request, llm, schema, stop, reporter, meter };
    match request.mode {
        Mode::Agentic => agentic(cx).await,
        Mode::Generate => generate(cx).await,
        Mode::Cancel => Err(Failure::new(Code::InvalidRequest, "The request is invalid: there is no run to cancel.")),
    }
}
