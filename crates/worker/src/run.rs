//! A run, from its request to its last message.

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

/// Limit of a run in seconds, unless its request sets another.
const DEFAULT_SECONDS: u64 = 1800;

/// Runs a request and reports progress. The messages end with `result` and `usage` in any case.
///
/// # Errors
/// Why the run failed, as in its `result`.
pub(crate) async fn run(
    worker: &Worker,
    request: &WorkerRequest,
    to: mpsc::Sender<WorkerMessage>,
    stop: &StopSignal,
) -> Result<()> {
    let (begun, mut meter) = (Instant::now(), Meter::default());
    let model = request.model.clone().unwrap_or_default();
    let mut teller = EventSink::new(to, request.session_id.clone(), model.clone());
    let seconds = request.limits.and_then(|it| it.wall_seconds).unwrap_or(DEFAULT_SECONDS);
    let result = {
        let doing = go(worker, request, &mut teller, &mut meter, stop);
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
    teller.end(&result, meter.usage(&model, took)).await;
    result.map(drop)
}

async fn go(
    worker: &Worker,
    request: &WorkerRequest,
    teller: &mut EventSink,
    meter: &mut Meter,
    stop: &StopSignal,
) -> Result<String> {
    let no_proxy =
        || Failure::new(Code::ProxyRequired, "LLM_PROXY_URL is not set: a worker reaches a model by the proxy only.");
    let url = worker.settings.proxy.as_ref().ok_or_else(no_proxy)?;
    let schema = stop.unless(schema(worker, request)).await??;
    let llm = Llm::new(url, worker.settings.token.as_ref(), worker.settings.patience);
    let cx = RunContext { worker, request, llm, schema, stop, teller, meter };
    match request.mode {
        Mode::Agentic => agentic(cx).await,
        Mode::Generate => generate(cx).await,
        Mode::Cancel => {
            Err(Failure::new(Code::InvalidRequest, "The request is invalid: nothing runs that could be cancelled."))
        }
    }
}
