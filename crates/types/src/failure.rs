//! The failure of a call as agents see it: a stable code, one sentence, what to do next, and details.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The stable codes that agents branch on. New ones may be added; none changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "containers.md 1.6, sandbox.md 0 and workspace.md 0.2 describe each code")]
pub enum Code {
    InvalidJson,
    UnknownOperation,
    UnknownField,
    MissingField,
    InvalidInput,
    InvalidName,
    ConflictingFields,
    ConfigInvalid,
    PolicyDenied,
    LimitReached,
    ConfirmRequired,
    NotReady,
    EngineUnavailable,
    EngineTooOld,
    EngineFailed,
    EngineTimeout,
    EngineDenied,
    QuotaExceeded,
    NodeLost,
    Unsupported,
    NotFound,
    NotManaged,
    OtherSession,
    NameTaken,
    NotRunning,
    Busy,
    InUse,
    ImageNotFound,
    ImageChanged,
    PullFailed,
    PullTimeout,
    PullBackoff,
    BaseBuildFailed,
    BaseImageBuildFailed,
    PackagesFailed,
    PortTaken,
    UserNotFound,
    JobNotFound,
    OutputExpired,
    CreateFailed,
    ReadinessFailed,
    CrashLoop,
    SessionEnded,
    MountInvalid,
    MountTooLarge,
    MountFailed,
    ApplyConflict,
    ApplyFailed,
    NoShell,
    NoSuchShell,
    ShellEnded,
    GuestFailed,
    GuestLost,
    FilesRemoved,
    PathNotFound,
    PathExists,
    PathNotEncodable,
    CopyFailed,
    SnapshotSecrets,
    ComposeUnavailable,
    ComposeInvalid,
    ComposeFailed,
    Unhealthy,
    SaveFailed,
    AuditBroken,
    CleanupFailed,
    Partial,
    Cancelled,
    Internal,
    // Sandboxes (sandbox.md 0).
    InvalidProfile,
    SandboxUnavailable,
    SandboxNotReady,
    SandboxLost,
    CommandFailed,
    CommandTimedOut,
    WriteFailed,
    TeardownIncomplete,
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
    WorkerDied,
    NoResult,
    EgressNotEnforced,
    ProxyUnreachable,
    PolicyMissing,
    DevcontainerInvalid,
    DevcontainerRefused,
    // Tools of a workspace (workspace.md 0.2, 2 to 6).
    WorkspaceLost,
    PathEmpty,
    PathDots,
    PathCharset,
    PathSegment,
    PathDepth,
    PathEscape,
    DirectoryNotFound,
    NotADirectory,
    FileNotFound,
    IsADirectory,
    NotRegular,
    InvalidRange,
    BinaryFile,
    InvalidBase64,
    ContentTooLarge,
    FileExists,
    OldStringEmpty,
    OldStringNotFound,
    OldStringAmbiguous,
    ReadRequired,
    StaleRead,
    DiskFull,
    PermissionDenied,
    RootRefused,
    NothingMatched,
    RmIncomplete,
    InvalidPattern,
    InvalidRegex,
    InvalidCommand,
    InvalidCwd,
    CwdNotFound,
    CwdNotDirectory,
    InvalidEnv,
    InvalidStdin,
    InvalidTimeout,
    TimedOut,
    OutOfMemory,
    NotSupported,
    InvalidCode,
    EvaluationFailed,
    CodeRequired,
    CodeTooLarge,
    LanguageUnknown,
    LanguageUnavailable,
    RunFailed,
    ExecutionModeInvalid,
    ExecutionModeUnavailable,
}

impl Code {
    /// Whether the same call may succeed later, with nothing changed by the caller.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::EngineUnavailable
                | Self::EngineTimeout
                | Self::QuotaExceeded
                | Self::NodeLost
                | Self::GuestLost
                | Self::PullFailed
                | Self::PullTimeout
                | Self::PullBackoff
                | Self::LimitReached
                | Self::InUse
                | Self::Unhealthy
                | Self::CreateFailed
                | Self::ReadinessFailed
                | Self::CrashLoop
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
                | Self::WorkspaceLost
        )
    }

    /// The code as a string, as in answers.
    #[must_use]
    pub fn word(self) -> String {
        serde_json::to_value(self).ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

/// A call that did not do what was requested.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What agents branch on.
    pub code: Code,
    /// One sentence that names the object.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// The hint for a person at the command line, where it differs.
    pub person_hint: Option<Box<str>>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// More, by code.
    pub details: Map<String, Value>,
}

impl Failure {
    /// A failure without a hint or details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let (message, retryable) = (message.into(), code.is_retryable());
        Self { code, message, hint: None, person_hint: None, retryable, details: Map::new() }
    }

    /// An error that no code foresees.
    pub fn internal(err: impl std::fmt::Display) -> Self {
        Self::new(Code::Internal, err.to_string())
    }

    /// The caller cancelled the call.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::new(Code::Cancelled, "the call was cancelled")
    }

    /// Sets what to do next, for agents and persons.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        (self.hint, self.person_hint) = (Some(hint.into()), None);
        self
    }

    /// Sets what to do next for an agent, and for a person at the command line.
    #[must_use]
    pub fn hint_for(self, agent: impl Into<String>, person: impl Into<String>) -> Self {
        Self { person_hint: Some(person.into().into_boxed_str()), ..self.hint(agent) }
    }

    /// Adds to `details`. A value that JSON cannot hold becomes `null`.
    #[must_use]
    pub fn detail(mut self, key: &str, value: impl Serialize) -> Self {
        self.details.insert(key.to_owned(), serde_json::to_value(value).unwrap_or(Value::Null));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, Failure};

    #[test]
    fn codes_are_snake_case() {
        for (code, word) in [
            (Code::EngineUnavailable, "engine_unavailable"),
            (Code::SandboxLost, "sandbox_lost"),
            (Code::OldStringAmbiguous, "old_string_ambiguous"),
        ] {
            assert_eq!(code.word(), word);
        }
    }

    #[test]
    fn a_later_hint_replaces_both() {
        let failure = Failure::new(Code::Busy, "no").hint_for("a", "b").hint("c");
        assert_eq!((failure.hint.as_deref(), failure.person_hint), (Some("c"), None));
        assert!(failure.retryable);
    }
}
