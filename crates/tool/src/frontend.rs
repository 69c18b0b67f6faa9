//! What all front ends share: a call that runs beside its listener.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::dispatch::{self, CallInput, CallResponse, OperationEntry};
use crate::failure::Failure;
use crate::operations;
use crate::process::Process;
use crate::progress::{Event, Progress};
use crate::tools;

/// News that is still on its way when the answer is there may take this long.
const LATE: Duration = Duration::from_millis(200);

/// Runs a call beside its listener, who hears everything before the answer is given.
pub async fn drive(
    process: &Process,
    input: CallInput,
    on_event: Option<&mut (dyn FnMut(Event) + Send)>,
) -> Map<String, Value> {
    drive_one_of(operations::ALL, process, input, on_event).await.json
}

/// The same for another table of operations, with the response as a person reads it.
pub async fn drive_one_of(
    table: &'static [OperationEntry],
    process: &Process,
    input: CallInput,
    on_event: Option<&mut (dyn FnMut(Event) + Send)>,
) -> CallResponse {
    let work = |process: Process| async move { dispatch::reply(table, &process, input).await };
    beside(process, work, on_event).await.unwrap_or_else(|failure| CallResponse::of_failure(&failure, None))
}

/// The same for one of the other tools.
pub async fn drive_tool(
    process: &Process,
    entry: OperationEntry,
    arguments: Map<String, Value>,
    on_event: Option<&mut (dyn FnMut(Event) + Send)>,
) -> CallResponse {
    let work = |process: Process| async move { tools::call(&entry, &process, arguments).await };
    beside(process, work, on_event).await.unwrap_or_else(|failure| entry.refused(&failure))
}

/// A panic in the work is a fault of ours, and an answer all the same.
async fn beside<T, F>(
    process: &Process,
    work: impl FnOnce(Process) -> F,
    on_event: Option<&mut (dyn FnMut(Event) + Send)>,
) -> Result<T, Failure>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let Some(on_event) = on_event else { return tokio::spawn(work(process.clone())).await.map_err(Failure::internal) };
    let (progress, mut events) = Progress::channel();
    let mut work = tokio::spawn(work(process.for_call(process.context.call.cancel.clone(), progress)));
    let answer = loop {
        tokio::select! {
            biased;
            Some(event) = events.recv() => on_event(event),
            answer = &mut work => break answer.map_err(Failure::internal),
        }
    };
    while let Ok(Some(event)) = tokio::time::timeout(LATE, events.recv()).await {
        on_event(event);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::beside;
    use crate::context::Context;
    use crate::process::Process;

    #[tokio::test]
    async fn a_panic_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let process = Process::new(Context::for_tests(dir.path()));
        let work = |_: Process| async { assert_eq!(1, 2, "as planned") };
        let failure = beside(&process, work, None).await.unwrap_err();
        assert_eq!(failure.code.word(), "internal");
    }
}
