//! The codes that agents branch on (workspace.md 0.2, 2 to 6).

use serde::Serialize;

/// Stable words: new ones may be added, none changes its meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[expect(missing_docs, reason = "each code is described in workspace.md")]
pub enum Code {
    InvalidInput,
    Busy,
    Cancelled,
    Internal,
    EngineUnavailable,
    WorkspaceLost,
    SessionEnded,
    PathEmpty,
    PathDots,
    PathCharset,
    PathSegment,
    PathDepth,
    PathEscape,
    DirectoryNotFound,
    NotADirectory,
    FileNotFound,
    PathNotFound,
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
    /// A code of whoever makes containers.
    #[serde(untagged)]
    Other(String),
}

impl Code {
    /// The same call may succeed later, with nothing changed by the caller.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Busy | Self::WorkspaceLost | Self::EngineUnavailable)
    }

    /// The word, as in answers.
    #[must_use]
    pub fn word(&self) -> String {
        serde_json::to_value(self).ok().and_then(|it| it.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn codes_are_words() {
        assert_eq!(Code::OldStringAmbiguous.word(), "old_string_ambiguous");
        assert_eq!(Code::Other("pull_failed".into()).word(), "pull_failed");
    }
}
