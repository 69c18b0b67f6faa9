//! Shared by all front ends: runs a call, passes on its events meanwhile, and turns a panic into an answer.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::time::Duration;

use coracle_context::failure::Failure;
use coracle_context::progress::{Event, Progress};
use coracle_prepare::process::Process;
use futures_util::FutureExt as _;
use serde_json::{Map, Value};

use crate::dispatch::{self, CallInput, CallResponse, OperationEntry};
use crate::tools;

/// Events that are still on their way when the answer is there may take this long.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_millis(200);

/// Receives the events of a call.
pub type OnEvent<'a> = &'a mut (dyn FnMut(Event) + Send);

/// Executes a call of one of these operations. All its events are received before the answer is given.
///
/// The call ends where this future is dropped: a front end whose clients come and go spawns a task for it.
pub async fn execute(
    table: &'static [OperationEntry],
    process: &Process,
    input: CallInput,
    on_event: Option<OnEvent<'_>>,
) -> CallResponse {
    let work = |process: Process| async move { dispatch::execute(table, &process, input).await };
    run_with_events(process, work, on_event).await.unwrap_or_else(|failure| CallResponse::of_failure(&failure, None))
}

/// The same for one of the other tools.
pub async fn execute_tool(
    process: &Process,
    entry: OperationEntry,
    arguments: Map<String, Value>,
    on_event: Option<OnEvent<'_>>,
) -> CallResponse {
    let work = |process: Process| async move { tools::execute(&entry, &process, arguments).await };
    run_with_events(process, work, on_event).await.unwrap_or_else(|failure| entry.refused(&failure))
}

/// A panic in the work is a bug in Coracle. It becomes an answer.
async fn run_with_events<T, F: Future<Output = T>>(
    process: &Process,
    work: impl FnOnce(Process) -> F,
    on_event: Option<OnEvent<'_>>,
) -> Result<T, Failure> {
    let Some(on_event) = on_event else { return caught(Box::pin(work(process.clone()))).await };
    let (progress, mut events) = Progress::channel();
    let mut work = pin!(caught(Box::pin(work(process.for_call(process.context.call.cancel.clone(), progress)))));
    let answer = loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => on_event(event),
            answer = &mut work => break answer,
        }
    };
    while let Ok(Some(event)) = tokio::time::timeout(LAST_EVENTS_TIMEOUT, events.recv()).await {
        on_event(event);
    }
    answer
}

async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|panic| {
        let message = panic.downcast_ref::<String>().cloned();
        let message = message.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Failure::internal(message.unwrap_or_else(|| "a panic".to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use coracle_context::context::Context;
    use coracle_prepare::process::Process;

    use super::run_with_events;

    #[tokio::test]
    async fn a_panic_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::new(Context::for_tests(dir.path()));
        let work = |_: Process| async { assert_eq!(1, 2, "as planned") };
        let failure = run_with_events(&process, work, None).await.unwrap_err();
        assert_eq!(failure.code.word(), "internal");
        assert!(failure.message.contains("as planned"), "{}", failure.message);
    }
}
