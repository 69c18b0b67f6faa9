//! Runs a call from its request to its answer, with events in between.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use coracle::{CallInput, Input, frontend};
use coracle_context::{Event, Progress};
use coracle_prepare::Process;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::catalog::{Callee, Catalog};

/// How long events that precede the answer may take to be delivered.
const LATE: Duration = Duration::from_millis(200);

/// A call: the callee and its arguments.
#[derive(Debug)]
pub(crate) struct CallTask {
    pub(crate) callee: Callee,
    pub(crate) arguments: CallInput,
    /// Content for the call, in addition to its arguments.
    pub(crate) input: Option<Input>,
}

/// Receives the events of a call, each in the form that it needs.
#[derive(Debug)]
pub(crate) struct EventSender<T> {
    pub(crate) to: mpsc::Sender<T>,
    pub(crate) form: fn(Event) -> T,
}

impl CallTask {
    /// Makes the call. Events are delivered before the answer; a slow listener delays the call.
    pub(crate) async fn answer<T>(
        self,
        process: &Process,
        cancel: CancellationToken,
        events: Option<EventSender<T>>,
    ) -> Map<String, Value> {
        let Some(listener) = events else { return self.drive(process.for_call(cancel, Progress::none())).await };
        // The code that writes the client's lines detects its disconnect.
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

/// The event as `coracle call --stream` writes it. Output that is not valid text, such as a part of a character, is in
/// `base64` instead of `data`, so that the joined pieces are the command's exact output.
pub(crate) fn line(event: &Event) -> Value {
    match event {
        Event::Output(chunk) if std::str::from_utf8(&chunk.bytes).is_err() => {
            let name = event.line()["event"].take();
            json!({ "event": name, "base64": BASE64_STANDARD.encode(&chunk.bytes), "offset": chunk.offset })
        }
        event => event.line(),
    }
}
