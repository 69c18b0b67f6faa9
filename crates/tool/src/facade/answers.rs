//! Answers with their types.

use coracle_context::failure::Failure;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Fields of a call, or of its answer.
pub type CallFields = Map<String, Value>;

/// How a command ended, and what it printed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct CommandResult {
    /// Its exit code; none while it runs, and for one that a signal ended.
    pub exit_code: Option<i64>,
    /// What it printed. Of a long output, its beginning and its end.
    pub stdout: String,
    /// What it printed as errors.
    pub stderr: String,
    /// A limit of time ended it.
    pub timed_out: bool,
    /// The signal that ended it.
    pub signal: Option<String>,
    /// Some of the output is missing here; `job_read` has it.
    pub truncated: bool,
    /// Its job: of one that goes on, and of one whose output was cut.
    pub job_id: Option<String>,
    /// It goes on as a job.
    pub running: bool,
    /// From its start to its end.
    pub duration_ms: u64,
}

impl CommandResult {
    /// Whether it exited with 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.exit_code == Some(0)
    }
}

/// An answer as its type.
pub(super) fn typed<T: DeserializeOwned>(answer: CallFields) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(answer)).map_err(Failure::internal)
}

/// Fields, of what is written as an object.
pub(super) fn fields(object: Value) -> CallFields {
    match object {
        Value::Object(fields) => fields.into_iter().filter(|it| !it.1.is_null()).collect(),
        _ => Map::new(),
    }
}
