//! The codes that agents branch on (containers.md 1.6).

use serde::Serialize;

/// Stable words: new ones may be added, none changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each code is described in containers.md 1.6")]
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
    PullFailed,
    PullTimeout,
    PullBackoff,
    BaseBuildFailed,
    PortTaken,
    UserNotFound,
    JobNotFound,
    OutputExpired,
    CreateFailed,
    ReadinessFailed,
    CrashLoop,
    SessionEnded,
    NoShell,
    GuestFailed,
    GuestLost,
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
    CleanupFailed,
    Partial,
    Cancelled,
    Internal,
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
        )
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
