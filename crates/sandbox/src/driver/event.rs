//! What happens in a run.

use serde::Serialize;
use serde_json::{Map, Value};

/// What happens in a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The sandbox runs, and the worker has the request.
    Started {
        /// Id of the run.
        run_id: String,
        /// Of the sandbox.
        generation: u64,
        /// Why there is another container than before.
        recreated: Option<String>,
    },
    /// Text of an unfinished turn.
    Thinking {
        /// The text.
        text: String,
        /// Which model.
        model: Option<String>,
    },
    /// A tool is called.
    ToolCall {
        /// Of the call.
        id: String,
        /// Of the tool.
        name: String,
        /// Its arguments.
        input: Map<String, Value>,
        /// Which model.
        model: Option<String>,
    },
    /// What a tool answered.
    ToolResult {
        /// Of the call.
        id: String,
        /// Of the tool.
        name: String,
        /// Its answer, cut at 10,000 characters.
        output: String,
        /// It did not complete the request.
        is_error: bool,
    },
    /// The run ended well. The last event.
    Result {
        /// The final text, or JSON where a schema was given.
        content: String,
        /// Never: a failed run ends the stream with its error.
        is_error: bool,
        /// Which model.
        model: Option<String>,
    },
    /// News that is not the run's.
    Warning {
        /// What a caller can branch on.
        code: String,
        /// A sentence.
        message: String,
    },
}
