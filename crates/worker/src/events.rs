//! The messages of a run, numbered.

use coracle_sandbox::protocol::{MAX_CONTENT, MessageType, Usage, WorkerMessage, cut};
use coracle_sandbox::{Failure, Result};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::llm::ModelCall;

/// Sends the messages of one run.
#[derive(Debug)]
pub(crate) struct EventSink {
    to: mpsc::Sender<WorkerMessage>,
    seq: u64,
    session_id: Option<String>,
    pub(crate) model: String,
}

impl EventSink {
    pub(crate) fn new(to: mpsc::Sender<WorkerMessage>, session_id: Option<String>, model: String) -> Self {
        Self { to, seq: 0, session_id, model }
    }

    pub(crate) async fn thinking(&mut self, text: &str) {
        let content = Some(bounded(text));
        self.emit(WorkerMessage { content, ..WorkerMessage::new(MessageType::Thinking) }).await;
    }

    pub(crate) async fn tool_call(&mut self, call: &ModelCall, input: &Map<String, Value>) {
        self.emit(WorkerMessage {
            tool_name: Some(call.name.clone()),
            tool_call_id: Some(call.id.clone()),
            tool_input: Some(input.clone()),
            ..WorkerMessage::new(MessageType::ToolCall)
        })
        .await;
    }

    pub(crate) async fn tool_result(&mut self, call: &ModelCall, output: &str, is_error: bool) {
        self.emit(WorkerMessage {
            tool_name: Some(call.name.clone()),
            tool_call_id: Some(call.id.clone()),
            tool_output: Some(cut(output)),
            is_error,
            ..WorkerMessage::new(MessageType::ToolResult)
        })
        .await;
    }

    /// Sends the last two messages.
    pub(crate) async fn end(mut self, result: &Result<String>, usage: Usage) {
        let message = WorkerMessage::new(MessageType::Result);
        let message = match result {
            Ok(text) => WorkerMessage { content: Some(bounded(text)), ..message },
            Err(Failure { code, message: text, .. }) => {
                WorkerMessage { content: Some(bounded(text)), is_error: true, code: Some(code.word()), ..message }
            }
        };
        self.emit(message).await;
        self.emit(WorkerMessage { usage: Some(usage), ..WorkerMessage::new(MessageType::Usage) }).await;
    }

    async fn emit(&mut self, mut message: WorkerMessage) {
        self.seq += 1;
        message.seq = self.seq;
        message.session_id.clone_from(&self.session_id);
        message.model = (message.r#type != MessageType::Usage).then(|| self.model.clone());
        // A closed channel is ignored: the code that detects the host's disconnect stops the run.
        let _ = self.to.send(message).await;
    }
}

fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_CONTENT)].to_owned()
}
