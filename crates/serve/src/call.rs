//! A call from its request to its answer, with events on the way.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use coracle::{CallInput, Input, frontend};
use coracle_context::{Event, Progress};
use coracle_prepare::Process;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::catalog::{Callee, Catalog};

/// Events that are still on their way when the answer is there may take this long.
const LATE: Duration = Duration::from_millis(200);

/// What is called, with what.
#[derive(Debug)]
pub(crate) struct CallTask {
    pub(crate) callee: Callee,
    pub(crate) arguments: CallInput,
    /// Content for the call, beside its arguments.
    pub(crate) input: Option<Input>,
}

/// Takes the events of a call, each in the form that it wants.
#[derive(Debug)]
pub(crate) struct EventSender<T> {
    pub(crate) to: mpsc::Sender<T>,
    pub(crate) form: fn(Event) -> T,
}

impl CallTask {
    /// Makes the call. Events come before the answer; a listener that is slow to take them holds the call up.
    pub(crate) async fn answer<T>(
        self,
        process: &Process,
        cancel: CancellationToken,
        events: Option<EventSender<T>>,
    ) -> Map<String, Value> {
        let Some(listener) = events else { return self.drive(process.for_call(cancel, Progress::none())).await };
        // A client that has gone is noticed where its lines are written.
        let forward = async |event| drop(listener.to.send((listener.form)(event)).await);
        let (progress, mut events) = Progress::channel();
        let work = self.drive(process.for_call(cancel, progress));
        tokio::pin!(work);
        let answer = loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => forward(event).await,
                answer = &mut work => break answer,
            }
        };
        while let Ok(Some(event)) = tokio::time::timeout(LATE, events.recv()).await {
            forward(event).await;
        }
        answer
    }

    async fn drive(self, mut process: Process) -> Map<String, Value> {
        if let Some(input) = self.input {
            process.context = process.context.with_input(input);
        }
        let response = match (self.callee, self.arguments) {
            (Callee::Tool(entry), CallInput::Object(arguments)) => {
                frontend::execute_tool(&process, entry, arguments, None).await
            }
            (_, input) => frontend::execute(Catalog::operations(), &process, input, None).await,
        };
        response.json
    }
}

/// The event as `coracle call --stream` writes it. Output that is no text by itself, such as a part of a character, is in
/// `base64` in place of `data`, so that the pieces put together are what the command wrote.
pub(crate) fn line(event: &Event) -> Value {
    match event {
        Event::Output(chunk) if std::str::from_utf8(&chunk.bytes).is_err() => {
            let name = event.line()["event"].take();
            json!({ "event": name, "base64": BASE64_STANDARD.encode(&chunk.bytes), "offset": chunk.offset })
        }
        event => event.line(),
    }
}
