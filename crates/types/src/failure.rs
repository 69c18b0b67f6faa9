//! The failure of a call as agents see it: a stable code, one sentence, a hint, and details.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The stable codes that agents branch on. New ones may be added; none changes its meaning. The first sentence of each is
/// its row in the reference of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// The request is not JSON.
    InvalidJson,
    /// There is no operation of that name.
    UnknownOperation,
    /// The operation has no such field.
    UnknownField,
    /// A required field is missing.
    MissingField,
    /// A field has a wrong value.
    InvalidInput,
    /// A name does not follow the grammar of its kind.
    InvalidName,
    /// Fields exclude each other.
    ConflictingFields,
    /// The configuration or the state directory cannot be used; `details` has key and line.
    ConfigInvalid,
    /// The policy refuses the request; `details` has the rule and the setting.
    PolicyDenied,
    /// There are too many containers, jobs or other things of one kind.
    LimitReached,
    /// The call removes or writes much, and was not confirmed.
    ConfirmRequired,
    /// Something else is mounted than was admitted; the container was ended.
    MountChanged,
    /// A newer version of Coracle wrote the file, which this version does not change.
    NewerVersion,
    /// This host is not ready; `preflight` reports what is missing.
    NotReady,
    /// The engine is not installed or does not answer.
    EngineUnavailable,
    /// The engine is older than the oldest supported version.
    EngineTooOld,
    /// The engine failed at a request; `details.engine_error` has its output.
    EngineFailed,
    /// The engine did not finish a request in time.
    EngineTimeout,
    /// A cluster refuses the request: a right is missing, or a rule of admission forbids it.
    EngineDenied,
    /// A cluster has no room for the container.
    QuotaExceeded,
    /// The node of the container no longer answers.
    NodeLost,
    /// The engine or the container does not support this; `details.capability` names what it lacks.
    Unsupported,
    /// Nothing of that name exists.
    NotFound,
    /// It exists, but Coracle cannot prove that it made it.
    NotManaged,
    /// It belongs to another session.
    OtherSession,
    /// The name is in use.
    NameTaken,
    /// The container is stopped.
    NotRunning,
    /// Another call holds it, or too many calls run.
    Busy,
    /// Containers use the network or the snapshot.
    InUse,
    /// No image has that name.
    ImageNotFound,
    /// The image is another one than the one that was pinned.
    ImageChanged,
    /// The image could not be pulled.
    PullFailed,
    /// The pull took too long.
    PullTimeout,
    /// The pull failed a moment ago, and is not tried again yet.
    PullBackoff,
    /// The Debian base that replaces a registry could not be built.
    BaseBuildFailed,
    /// An image that Coracle builds, such as that of snippets, could not be built.
    BaseImageBuildFailed,
    /// The packages could not be installed.
    PackagesFailed,
    /// The host port is in use.
    PortTaken,
    /// The image has no such user.
    UserNotFound,
    /// The container knows no such job.
    JobNotFound,
    /// The requested output is no longer available.
    OutputExpired,
    /// The container of a session could not be created; `details.why` has the cause's code.
    CreateFailed,
    /// The container of a session started but was not usable.
    ReadinessFailed,
    /// The container of a session failed again and again; `details.retry_after_ms` says when it is tried again.
    CrashLoop,
    /// The session has ended.
    SessionEnded,
    /// A host directory cannot be imported as it is described.
    MountInvalid,
    /// A host directory is larger than its limit.
    MountTooLarge,
    /// A host directory could not be imported.
    MountFailed,
    /// The target has changed, so nothing was written.
    ApplyConflict,
    /// Changes could not be written; `details.written` lists what was.
    ApplyFailed,
    /// The image has no `/bin/sh`.
    NoShell,
    /// The session has no such shell.
    NoSuchShell,
    /// The command of the shell has ended.
    ShellEnded,
    /// The guest could not be started, or has another version.
    GuestFailed,
    /// The connection to the guest broke before the end of the command was known.
    GuestLost,
    /// The files of a running container were removed from outside, so nothing can run in it.
    FilesRemoved,
    /// The container was removed while a command ran in it.
    ContainerRemoved,
    /// There is no such file or directory.
    PathNotFound,
    /// The target exists and was not to be replaced.
    PathExists,
    /// The engine cannot carry a character of the path or name.
    PathNotEncodable,
    /// Files could not be copied.
    CopyFailed,
    /// A file of the container holds a secret that it received.
    SnapshotSecrets,
    /// Stacks are switched off, or cannot be started here.
    ComposeUnavailable,
    /// The Compose file is wrong.
    ComposeInvalid,
    /// A service of the stack did not start or did not become healthy.
    ComposeFailed,
    /// The container did not become ready; `last_error` has the output of the last attempt.
    Unhealthy,
    /// Unsaved work could not be saved, so nothing was removed.
    SaveFailed,
    /// The audit log was changed or has gaps.
    AuditBroken,
    /// Something that was created could not be removed.
    CleanupFailed,
    /// A part was done; `details` lists the rest.
    Partial,
    /// The caller cancelled.
    Cancelled,
    /// A fault of Coracle; the log has the cause under `details.id`.
    Internal,
    /// A profile's name does not follow its grammar, or there is none of that name.
    InvalidProfile,
    /// A sandbox failed repeatedly, and is not tried again yet.
    SandboxUnavailable,
    /// A sandbox could not be started; `details.step` names the step.
    SandboxNotReady,
    /// A sandbox ended during the call.
    SandboxLost,
    /// A command in a sandbox failed.
    CommandFailed,
    /// A command of a sandbox or of git took too long.
    CommandTimedOut,
    /// A file of a sandbox could not be written.
    WriteFailed,
    /// A sandbox could not be removed completely.
    TeardownIncomplete,
    /// The id of a workflow does not follow its grammar.
    InvalidWorkflowId,
    /// The name of a branch is not one that git accepts.
    InvalidBranch,
    /// The address of a repository or provider is wrong.
    InvalidUrl,
    /// The repository has no such branch, tag or commit.
    BaseNotFound,
    /// Another worktree or branch has the name.
    BranchConflict,
    /// There is no worktree of that workflow.
    WorktreeMissing,
    /// The image has no git.
    GitMissing,
    /// A repository of Coracle cannot be read.
    RepoCorrupt,
    /// The repository could not be fetched.
    FetchFailed,
    /// The name of the repository's host has no address.
    HostUnresolved,
    /// The branch has no commit beyond its base.
    NoCommits,
    /// Coracle refuses the push; `details.rule` names the rule.
    PushRefused,
    /// The remote did not accept the push.
    PushRejected,
    /// A request to a worker is too large.
    RequestTooLarge,
    /// The length of a request to a worker is wrong.
    InvalidRequestLength,
    /// A request to a worker ended too early.
    TruncatedRequest,
    /// A message of a worker is damaged.
    MalformedFrame,
    /// The request of a run contradicts itself.
    InvalidRequest,
    /// This build cannot check results against a schema.
    SchemaUnsupported,
    /// The schema of a run's result is not a JSON Schema.
    SchemaInvalid,
    /// The result of a run does not follow its schema.
    SchemaViolation,
    /// A run asks a model, and no proxy is there.
    ProxyRequired,
    /// The model provider refuses the key.
    LlmUnauthorized,
    /// The model provider answered with an error.
    LlmFailed,
    /// The conversation is longer than the model's context.
    ContextOverflow,
    /// The run reached its number of model calls.
    MaxTurns,
    /// The run reached its time limit.
    WallLimit,
    /// The run or the sandbox has used its tokens.
    BudgetExhausted,
    /// The worker ended without a result, or could not be started.
    WorkerDied,
    /// The worker ended without a result message.
    NoResult,
    /// The self-test reached a network that the sandbox must not reach.
    EgressNotEnforced,
    /// The worker did not reach the proxy.
    ProxyUnreachable,
    /// A request reached the proxy without a policy.
    PolicyMissing,
    /// The `devcontainer.json` or a feature of it is wrong.
    DevcontainerInvalid,
    /// The `devcontainer.json` asks for something that is not allowed.
    DevcontainerRefused,
    /// The container of the session's workspace ended during the call.
    WorkspaceLost,
    /// A path is empty.
    PathEmpty,
    /// A path has `.` or `..` as a part.
    PathDots,
    /// A path has a character that `workspace.path_charset` does not allow.
    PathCharset,
    /// A part of a path is too long or has a wrong character.
    PathSegment,
    /// A path has too many parts.
    PathDepth,
    /// A link of the path leads out of the workspace.
    PathEscape,
    /// There is no such directory.
    DirectoryNotFound,
    /// The path is a file, not a directory.
    NotADirectory,
    /// There is no such file.
    FileNotFound,
    /// The path is a directory, not a file.
    IsADirectory,
    /// The path is a device, a socket or another special file.
    NotRegular,
    /// The offset or limit is wrong.
    InvalidRange,
    /// The file is not text.
    BinaryFile,
    /// The content is not base64.
    InvalidBase64,
    /// The content is larger than one call may carry.
    ContentTooLarge,
    /// The file exists, and was to be new.
    FileExists,
    /// The text to replace is empty.
    OldStringEmpty,
    /// The file does not contain the text to replace.
    OldStringNotFound,
    /// The file contains the text to replace more than once.
    OldStringAmbiguous,
    /// The file must be read before it is changed.
    ReadRequired,
    /// The file changed after it was read.
    StaleRead,
    /// There is no space left.
    DiskFull,
    /// The user of the session must not do this to the path.
    PermissionDenied,
    /// The root of the workspace cannot be removed.
    RootRefused,
    /// No file matches.
    NothingMatched,
    /// A part of a directory could not be removed.
    RmIncomplete,
    /// The file pattern is wrong.
    InvalidPattern,
    /// The regular expression is wrong.
    InvalidRegex,
    /// The command is not a list of words.
    InvalidCommand,
    /// The working directory is not a path of the workspace.
    InvalidCwd,
    /// The working directory does not exist.
    CwdNotFound,
    /// The working directory is a file.
    CwdNotDirectory,
    /// A variable's name or value is wrong.
    InvalidEnv,
    /// The standard input is wrong or too large.
    InvalidStdin,
    /// The timeout is out of range.
    InvalidTimeout,
    /// The command or snippet took too long, and was ended.
    TimedOut,
    /// The command or snippet used more memory than it has.
    OutOfMemory,
    /// A field does not apply here.
    NotSupported,
    /// The code to evaluate is wrong.
    InvalidCode,
    /// The Python code could not be evaluated.
    EvaluationFailed,
    /// The code of a snippet is missing.
    CodeRequired,
    /// The code of a snippet is too large.
    CodeTooLarge,
    /// There is no such language.
    LanguageUnknown,
    /// The image cannot run that language.
    LanguageUnavailable,
    /// The interpreter of a snippet could not be started.
    RunFailed,
    /// `EXECUTION_MODE` has an unknown value.
    ExecutionModeInvalid,
    /// `EXECUTION_MODE` is `preload`, and no `run_code.preload` is configured.
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

/// The result of a step of a call.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// A call that did not do what was requested.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The code, for agents.
    pub code: Code,
    /// One sentence that names the object.
    pub message: String,
    /// The hint.
    pub hint: Option<String>,
    /// The hint for a user at the command line, if it differs.
    pub person_hint: Option<Box<str>>,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// Further data, by code.
    pub details: Map<String, Value>,
}

impl Failure {
    /// A failure without a hint or details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let (message, retryable) = (message.into(), code.is_retryable());
        Self { code, message, hint: None, person_hint: None, retryable, details: Map::new() }
    }

    /// A limit that the same call reaches again.
    pub fn over_limit(message: impl Into<String>) -> Self {
        Self { retryable: false, ..Self::new(Code::LimitReached, message) }
    }

    /// An unexpected error.
    pub fn internal(err: impl std::fmt::Display) -> Self {
        Self::new(Code::Internal, err.to_string())
    }

    /// The caller cancelled the call.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::new(Code::Cancelled, "the call was cancelled")
    }

    /// Sets the hint for agents and users.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        (self.hint, self.person_hint) = (Some(hint.into()), None);
        self
    }

    /// Sets one hint for an agent, and another for a user at the command line.
    #[must_use]
    pub fn hint_for(self, agent: impl Into<String>, person: impl Into<String>) -> Self {
        Self { person_hint: Some(person.into().into_boxed_str()), ..self.hint(agent) }
    }

    /// Adds to `details`. A value that cannot be serialised becomes `null`.
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
