//! What the host asks of a worker: a length, then JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::frame::is_id;
use crate::{Code, Failure, Result};

/// Bytes of a request, at most.
pub const MAX_REQUEST: usize = 64 << 20;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A run with tools.
    Agentic,
    /// One text, or one JSON value.
    Generate,
    /// The end of the run with that id.
    Cancel,
}

/// A request. Fields that are unknown are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerRequest {
    /// What is to be done.
    pub mode: Mode,
    /// The task.
    #[serde(default)]
    pub prompt: Option<String>,
    /// Which model.
    #[serde(default)]
    pub model: Option<String>,
    /// Where, beneath `/workspace`, which is the default.
    #[serde(default)]
    pub cwd: Option<String>,
    /// More for the system text.
    #[serde(default)]
    pub instructions: Option<String>,
    /// A file with a JSON Schema.
    #[serde(default)]
    pub schema_path: Option<String>,
    /// The JSON Schema itself.
    #[serde(default)]
    pub schema: Option<Value>,
    /// Names of the tools that are given; nothing is all of them.
    #[serde(default)]
    pub tools: Option<Vec<String>>,
    /// When the run is ended.
    #[serde(default)]
    pub limits: Option<RunLimits>,
    /// Echoed in every message.
    #[serde(default)]
    pub session_id: Option<String>,
    /// 128 random bits in hex, echoed in every frame.
    #[serde(default)]
    pub id: Option<String>,
}

/// When a run is ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunLimits {
    /// Model calls; 50 by default.
    #[serde(default)]
    pub max_turns: Option<u64>,
    /// Seconds; 1800 by default.
    #[serde(default)]
    pub wall_seconds: Option<u64>,
    /// Tokens sent and received; none by default.
    #[serde(default)]
    pub max_total_tokens: Option<u64>,
}

impl WorkerRequest {
    /// A request for that.
    #[must_use]
    pub fn new(mode: Mode, id: &str) -> Self {
        Self {
            mode,
            prompt: None,
            model: None,
            cwd: None,
            instructions: None,
            schema_path: None,
            schema: None,
            tools: None,
            limits: None,
            session_id: None,
            id: Some(id.to_owned()),
        }
    }

    /// Reads one, without its length.
    ///
    /// # Errors
    /// `invalid_request`: no JSON, an unknown field, a missing one, or two that exclude each other.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let invalid = |message: String| Failure::new(Code::InvalidRequest, message);
        let it: Self =
            serde_json::from_slice(bytes).map_err(|err| invalid(format!("The request is invalid: {err}.")))?;
        it.check().map_err(invalid)?;
        Ok(it)
    }

    fn check(&self) -> Result<(), String> {
        let missing = |name: &str| Err(format!("The request is invalid: `{name}` is required."));
        if self.id.as_ref().is_some_and(|it| !is_id(it)) {
            return Err("The request is invalid: `id` is not 32 hex digits.".into());
        }
        if self.mode == Mode::Cancel {
            return if self.id.is_none() { missing("id") } else { Ok(()) };
        }
        if self.prompt.as_ref().is_none_or(|it| it.trim().is_empty()) {
            return missing("prompt");
        }
        if self.model.as_ref().is_none_or(String::is_empty) {
            return missing("model");
        }
        if self.schema.is_some() && self.schema_path.is_some() {
            return Err("The request is invalid: `schema` and `schema_path` exclude each other.".into());
        }
        Ok(())
    }
}

/// A request as it travels.
///
/// # Errors
/// `request_too_large`.
pub fn encode(request: &WorkerRequest) -> Result<Vec<u8>> {
    let json = serde_json::to_vec(request).map_err(Failure::internal)?;
    if json.len() > MAX_REQUEST {
        let message = format!("Request is too large: {} bytes (max {MAX_REQUEST})", json.len());
        return Err(Failure::new(Code::RequestTooLarge, message));
    }
    let length = u32::try_from(json.len()).map_err(Failure::internal)?;
    Ok([&length.to_be_bytes()[..], &json].concat())
}

/// Takes bytes in pieces of any size and gives whole requests.
#[derive(Debug, Default)]
pub struct Requests {
    bytes: Vec<u8>,
}

impl Requests {
    /// Takes a piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// The next request without its length, if all of it is there.
    ///
    /// # Errors
    /// `invalid_request_length`, after which nothing can be read any more.
    pub fn next_request(&mut self) -> Result<Option<Vec<u8>>> {
        let Some((length, rest)) = self.bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > MAX_REQUEST {
            let message = format!("Invalid request length: {length}");
            return Err(Failure::new(Code::InvalidRequestLength, message));
        }
        if rest.len() < length {
            return Ok(None);
        }
        let left = self.bytes.split_off(4 + length);
        let mut request = std::mem::replace(&mut self.bytes, left);
        request.drain(..4);
        Ok(Some(request))
    }

    /// Nothing more will come.
    ///
    /// # Errors
    /// `truncated_request`: there is a part of one.
    pub fn end(&self) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(Failure::new(Code::TruncatedRequest, "Truncated request"))
    }
}
