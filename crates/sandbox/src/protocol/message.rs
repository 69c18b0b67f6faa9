//! One message of a run.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Bytes of a text in a message, at most.
pub const MAX_CONTENT: usize = 1 << 20;

/// Characters of a tool's output in a message, at most.
pub const MAX_OUTPUT: usize = 10_000;

/// What a message tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageType {
    /// The text of an unfinished turn.
    Thinking,
    /// A tool is called.
    ToolCall,
    /// What the tool answered.
    ToolResult,
    /// How the run ended.
    Result,
    /// What it took.
    Usage,
}

/// A line of a run. All fields are always there; those of a newer worker are passed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerMessage {
    /// What it tells.
    pub r#type: MessageType,
    /// Text of a turn, the final text, or why there is none.
    pub content: Option<String>,
    /// Of `tool_call` and `tool_result`.
    pub tool_name: Option<String>,
    /// Of `tool_call` and `tool_result`: every call gets exactly one result.
    pub tool_call_id: Option<String>,
    /// Of `tool_call`.
    pub tool_input: Option<Map<String, Value>>,
    /// Of `tool_result`.
    pub tool_output: Option<String>,
    /// That of the request.
    pub session_id: Option<String>,
    /// Of `tool_result` and `result`.
    #[serde(default)]
    pub is_error: bool,
    /// Which model. Of all but `usage`.
    pub model: Option<String>,
    /// Of `usage`.
    pub usage: Option<Usage>,
    /// Of a `result` that is an error.
    pub code: Option<String>,
    /// From 1, one more for each message of a run.
    pub seq: u64,
}

/// What a run took: sums over all model calls, retried and repair calls included. Nothing where it is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens sent.
    pub input_tokens: Option<u64>,
    /// Tokens received.
    pub output_tokens: Option<u64>,
    /// Sent tokens that the provider had cached.
    pub cache_read_tokens: Option<u64>,
    /// Tokens sent that the provider keeps from now on.
    pub cache_creation_tokens: Option<u64>,
    /// Only if the provider tells it.
    pub cost_usd: Option<f64>,
    /// From the start of the run to its end.
    pub duration_ms: Option<u64>,
    /// Model calls that were completed.
    pub num_turns: Option<u64>,
    /// Which model.
    pub model: Option<String>,
}

impl WorkerMessage {
    /// A message that says nothing yet.
    #[must_use]
    pub fn new(r#type: MessageType) -> Self {
        Self {
            r#type,
            content: None,
            tool_name: None,
            tool_call_id: None,
            tool_input: None,
            tool_output: None,
            session_id: None,
            is_error: false,
            model: None,
            usage: None,
            code: None,
            seq: 0,
        }
    }

    /// Reads one, and holds it against what every message keeps to.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let it: Self = serde_json::from_str(text).map_err(|err| err.to_string())?;
        it.check().map(|()| it)
    }

    fn check(&self) -> Result<(), String> {
        let wants = |there: bool, field: &str| match there {
            true => Ok(()),
            false => Err(format!("`{field}` is missing")),
        };
        match self.r#type {
            MessageType::Thinking | MessageType::Result => wants(self.content.is_some(), "content")?,
            MessageType::ToolCall => wants(self.tool_input.is_some(), "tool_input")?,
            MessageType::ToolResult => wants(self.tool_output.is_some(), "tool_output")?,
            MessageType::Usage => wants(self.usage.is_some(), "usage")?,
        }
        if matches!(self.r#type, MessageType::ToolCall | MessageType::ToolResult) {
            wants(self.tool_name.is_some(), "tool_name")?;
            wants(self.tool_call_id.is_some(), "tool_call_id")?;
        }
        wants(self.seq > 0, "seq")?;
        if self.content.as_ref().is_some_and(|it| it.len() > MAX_CONTENT) {
            return Err(format!("`content` is longer than {MAX_CONTENT} bytes"));
        }
        // The note about the cut adds a few more.
        if self.tool_output.as_ref().is_some_and(|it| it.chars().count() > MAX_OUTPUT + 64) {
            return Err(format!("`tool_output` is longer than {MAX_OUTPUT} characters"));
        }
        Ok(())
    }
}

/// A tool's output as messages have it.
#[must_use]
pub fn cut(output: &str) -> String {
    match output.char_indices().nth(MAX_OUTPUT) {
        None => output.to_owned(),
        Some((at, _)) => format!("{}… [{} more characters]", &output[..at], output[at..].chars().count()),
    }
}
