//! What went wrong, in the words of sandbox.md 0.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A step's result.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// Stable words that agents branch on: new ones may be added, none changes its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each code is described in sandbox.md")]
pub enum Code {
    InvalidInput,
    PolicyDenied,
    Unsupported,
    LimitReached,
    Busy,
    Internal,
    InvalidProfile,
    SandboxUnavailable,
    SandboxNotReady,
    SandboxLost,
    CommandFailed,
    CommandTimedOut,
    WriteFailed,
    TeardownIncomplete,
    SaveFailed,
    InvalidWorkflowId,
    InvalidBranch,
    InvalidUrl,
    BaseNotFound,
    BranchConflict,
    WorktreeMissing,
    GitMissing,
    RepoCorrupt,
    FetchFailed,
    HostUnresolved,
    ApplyConflict,
    NoCommits,
    PushRefused,
    PushRejected,
    RequestTooLarge,
    InvalidRequestLength,
    TruncatedRequest,
    MalformedFrame,
    InvalidRequest,
    SchemaUnsupported,
    SchemaInvalid,
    SchemaViolation,
    ProxyRequired,
    LlmUnauthorized,
    LlmFailed,
    ContextOverflow,
    MaxTurns,
    WallLimit,
    BudgetExhausted,
    Cancelled,
    WorkerDied,
    NoResult,
    EgressNotEnforced,
    ProxyUnreachable,
    PolicyMissing,
    DevcontainerInvalid,
    DevcontainerRefused,
    /// A code of whoever makes containers.
    #[serde(untagged)]
    Other(String),
}

impl Code {
    /// The word.
    #[must_use]
    pub fn word(&self) -> String {
        match serde_json::to_value(self) {
            Ok(Value::String(word)) => word,
            _ => "internal".into(),
        }
    }

    /// The same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::SandboxUnavailable
                | Self::SandboxNotReady
                | Self::SandboxLost
                | Self::TeardownIncomplete
                | Self::FetchFailed
                | Self::HostUnresolved
                | Self::PushRejected
                | Self::LlmFailed
                | Self::WorkerDied
                | Self::ProxyUnreachable
        )
    }
}

/// A call that did not do what was asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What agents branch on.
    pub code: Code,
    /// One sentence.
    pub message: String,
    /// What to do next, where whoever made it knows.
    pub hint: Option<String>,
    /// The same call may succeed later.
    pub retryable: bool,
    /// More, by code.
    pub details: Map<String, Value>,
}

impl Failure {
    /// A failure with nothing more to tell.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let retryable = code.is_retryable();
        Self { code, message: message.into(), hint: None, retryable, details: Map::new() }
    }

    /// What nobody foresaw.
    pub fn internal(err: impl std::fmt::Display) -> Self {
        Self::new(Code::Internal, err.to_string())
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds to `details`.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

/// News that is not the answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// What a caller can branch on.
    pub code: String,
    /// A sentence.
    pub message: String,
}

impl Warning {
    /// A warning.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}
