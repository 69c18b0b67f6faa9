//! What a worker may say in a run, and what it means. Pure.

use std::collections::BTreeMap;

use super::event::Event;
use crate::protocol::{MessageType, ResponseFrame, Usage, WorkerMessage};
use crate::schema::Schema;
use crate::{Code, Failure, Result};

/// Messages of a run that cannot be read and are passed over.
const UNREADABLE: u32 = 10;

/// Characters of a worker's text that a failure tells.
const MAX_TEXT_CHARS: usize = 4_000;

/// Names that other workers use for Coracle's tools.
const NAMES: [(&str, &str); 10] = [
    ("Read", "read_file"),
    ("Write", "write_file"),
    ("Edit", "edit_file"),
    ("Glob", "glob"),
    ("Grep", "grep"),
    ("LS", "ls"),
    ("Bash", "shell_execute"),
    ("run_shell_command", "shell_execute"),
    ("execute", "shell_execute"),
    ("podman_shell", "shell_execute"),
];

/// Codes that a worker may give a failed run.
const CODES: [Code; 16] = [
    Code::InvalidRequest,
    Code::SchemaUnsupported,
    Code::SchemaInvalid,
    Code::SchemaViolation,
    Code::ProxyRequired,
    Code::ProxyUnreachable,
    Code::LlmUnauthorized,
    Code::LlmFailed,
    Code::ContextOverflow,
    Code::MaxTurns,
    Code::WallLimit,
    Code::BudgetExhausted,
    Code::Cancelled,
    Code::InvalidInput,
    Code::SandboxLost,
    Code::Internal,
];

/// One run, as far as it has come.
#[derive(Debug)]
pub(super) struct Run {
    id: String,
    schema: Option<Schema>,
    frames: u64,
    seq: u64,
    unreadable: u32,
    /// Calls without a result, and the tool of each.
    open: BTreeMap<String, String>,
    called: bool,
    result: Option<WorkerMessage>,
    usage: Option<Usage>,
    failed: Option<Failure>,
}

/// What a frame came to.
#[derive(Debug)]
pub(super) enum FrameOutcome {
    /// Nothing that anybody needs to hear.
    Nothing,
    Event(Event),
    /// The run is over.
    Over(Result<Event>),
}

impl Run {
    pub(super) fn new(id: String, schema: Option<Schema>) -> Self {
        Self {
            id,
            schema,
            frames: 0,
            seq: 0,
            unreadable: 0,
            open: BTreeMap::new(),
            called: false,
            result: None,
            usage: None,
            failed: None,
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn usage(&self) -> Option<Usage> {
        self.usage.clone()
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// `malformed_frame`: the worker did not keep to what was agreed, and is to be closed.
    pub(super) fn take(&mut self, frame: ResponseFrame) -> Result<FrameOutcome> {
        if frame.id() != self.id {
            return Err(malformed("a frame of another run"));
        }
        if self.failed.is_some() && !matches!(frame, ResponseFrame::Done { .. }) {
            return Err(malformed("a frame between an error and the end"));
        }
        match frame {
            ResponseFrame::Msg { text, .. } => {
                self.frames += 1;
                self.seq += 1;
                match WorkerMessage::parse(&text) {
                    Ok(message) => self.on_message(message),
                    Err(why) => self.pass_over(&why),
                }
            }
            ResponseFrame::Error { text, code, .. } => {
                self.failed = Some(self.failure(&code, &text));
                Ok(FrameOutcome::Nothing)
            }
            ResponseFrame::Done { messages, .. } if messages != self.frames => {
                Err(malformed(&format!("{messages} messages were counted, and {} came", self.frames)))
            }
            ResponseFrame::Done { .. } => Ok(FrameOutcome::Over(self.end())),
        }
    }

    fn on_message(&mut self, message: WorkerMessage) -> Result<FrameOutcome> {
        if message.seq != self.seq {
            return Err(malformed(&format!("message {} came as number {}", message.seq, self.seq)));
        }
        if self.result.is_some() && message.r#type != MessageType::Usage {
            return Err(malformed("a message after the result"));
        }
        let (text, model) = (message.content.clone().unwrap_or_default(), message.model.clone());
        match message.r#type {
            MessageType::Thinking => Ok(FrameOutcome::Event(Event::Thinking { text, model })),
            MessageType::ToolCall => self.called(message),
            MessageType::ToolResult => self.answered(message),
            MessageType::Result => {
                self.result = Some(message);
                Ok(FrameOutcome::Nothing)
            }
            MessageType::Usage if self.result.is_none() || self.usage.is_some() => {
                Err(malformed("usage is reported once, after the result"))
            }
            MessageType::Usage => {
                self.usage = message.usage;
                Ok(FrameOutcome::Nothing)
            }
        }
    }

    fn called(&mut self, message: WorkerMessage) -> Result<FrameOutcome> {
        let (id, name) = (message.tool_call_id.unwrap_or_default(), ours(message.tool_name.unwrap_or_default()));
        if self.open.insert(id.clone(), name.clone()).is_some() {
            return Err(malformed("a call that is open already"));
        }
        self.called = true;
        let (input, model) = (message.tool_input.unwrap_or_default(), message.model);
        Ok(FrameOutcome::Event(Event::ToolCall { id, name, input, model }))
    }

    fn answered(&mut self, message: WorkerMessage) -> Result<FrameOutcome> {
        let id = message.tool_call_id.unwrap_or_default();
        let Some(name) = self.open.remove(&id) else { return Err(malformed("the result of no call")) };
        let (output, is_error) = (message.tool_output.unwrap_or_default(), message.is_error);
        Ok(FrameOutcome::Event(Event::ToolResult { id, name, output, is_error }))
    }

    fn pass_over(&mut self, why: &str) -> Result<FrameOutcome> {
        self.unreadable += 1;
        tracing::warn!(%why, "a message of a worker cannot be read");
        if self.unreadable > UNREADABLE {
            return Err(malformed(&format!("more than {UNREADABLE} messages cannot be read")));
        }
        Ok(FrameOutcome::Nothing)
    }

    fn end(&mut self) -> Result<Event> {
        if let Some(failure) = self.failed.take() {
            return Err(failure);
        }
        let result = self.result.take().ok_or_else(no_result)?;
        let content = result.content.unwrap_or_default();
        if result.is_error {
            let code = result.code.unwrap_or_default();
            return Err(self.failure(&code, &content));
        }
        if let Some(schema) = &self.schema
            && let Err(faults) = schema.read(&content)
        {
            let text_start: String = content.chars().take(MAX_TEXT_CHARS).collect();
            let message = format!("The result does not fit its schema: {}.", faults.join("; "));
            return Err(Failure::new(Code::SchemaViolation, message).detail("text", text_start));
        }
        Ok(Event::Result { content, is_error: false, model: result.model })
    }

    /// A failure in the worker's words, with a code that a worker may give.
    fn failure(&self, code: &str, text: &str) -> Failure {
        let known = CODES.into_iter().find(|it| it.word() == code).unwrap_or(Code::LlmFailed);
        let message: String = text.chars().take(MAX_TEXT_CHARS).collect();
        self.with_changes(Failure::new(known, message))
    }

    /// What ends a run before its end.
    pub(super) fn broken(&self, failure: Failure) -> Failure {
        self.with_changes(failure)
    }

    pub(super) fn died(&self) -> Failure {
        self.with_changes(Failure::new(Code::WorkerDied, "The worker ended before its run did."))
    }

    /// A tool was called, so files may be other than before.
    fn with_changes(&self, failure: Failure) -> Failure {
        failure.detail("may_have_changed", self.called)
    }
}

pub(super) fn no_result() -> Failure {
    Failure::new(Code::NoResult, "Worker did not emit a RESULT message")
}

fn malformed(what: &str) -> Failure {
    Failure::new(Code::MalformedFrame, format!("Malformed worker frame: {what}"))
}

fn ours(name: String) -> String {
    NAMES.iter().find(|it| it.0 == name).map_or(name, |it| it.1.to_owned())
}
