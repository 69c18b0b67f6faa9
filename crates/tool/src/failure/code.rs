//! The codes that agents branch on (containers.md 1.6).

use serde::{Deserialize, Serialize};

/// Stable words: new ones may be added, none changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each code is described in containers.md 1.6 or sandbox.md 0")]
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
    // Of sandboxes (sandbox.md 0).
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
}

impl Code {
    /// The same call may succeed later, with nothing changed by the caller.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Busy
                | Self::EngineUnavailable
                | Self::EngineTimeout
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
        )
    }

    /// The code of a word, if it is one.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        serde_json::from_value(word.into()).ok()
    }

    /// The word, as in answers.
    #[must_use]
    pub fn word(self) -> String {
        serde_json::to_value(self).ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

/// `a`, `b` and `c`.
pub(super) fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|it| format!("`{it}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, listed};

    #[test]
    fn codes_are_snake_case() {
        assert_eq!(Code::EngineUnavailable.word(), "engine_unavailable");
    }

    #[test]
    fn lists_read_like_a_sentence() {
        assert_eq!(listed(&["a"]), "`a`");
        assert_eq!(listed(&["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
