//! Codes in groups that a program handles alike: the client packages have one exception class for each.

use crate::failure::Code;
use crate::failure::Code::*;

/// A group of codes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ErrorClass {
    /// The name of the class in the client packages.
    pub name: &'static str,
    /// What its codes have in common.
    pub about: &'static str,
    /// Each code is in one class.
    pub codes: &'static [Code],
}

const fn class(name: &'static str, about: &'static str, codes: &'static [Code]) -> ErrorClass {
    ErrorClass { name, about, codes }
}

/// All classes.
#[rustfmt::skip]
pub const ERROR_CLASSES: &[ErrorClass] = &[
    class("InvalidInput", "The request is wrong: a field, a name, a path or a pattern.", &[
        InvalidJson, UnknownOperation, UnknownField, MissingField, InvalidInput, InvalidName, ConflictingFields,
        ConfirmRequired, MountInvalid, PathNotEncodable, ComposeInvalid, InvalidProfile, InvalidWorkflowId, InvalidBranch,
        InvalidUrl, InvalidRequestLength, TruncatedRequest, MalformedFrame, InvalidRequest, SchemaInvalid,
        DevcontainerInvalid, PathEmpty, PathDots, PathCharset, PathSegment, PathDepth, NotADirectory, IsADirectory,
        NotRegular, InvalidRange, BinaryFile, InvalidBase64, OldStringEmpty, OldStringAmbiguous, InvalidPattern,
        InvalidRegex, InvalidCommand, InvalidCwd, CwdNotDirectory, InvalidEnv, InvalidStdin, InvalidTimeout, InvalidCode,
        CodeRequired, LanguageUnknown,
    ]),
    class("NotFound", "There is no such container, file, job, image or snapshot: `code` says which.", &[
        NotFound, ImageNotFound, UserNotFound, JobNotFound, OutputExpired, NoSuchShell, PathNotFound, BaseNotFound,
        WorktreeMissing, DirectoryNotFound, FileNotFound, OldStringNotFound, NothingMatched, CwdNotFound,
    ]),
    class("PolicyDenied", "A policy, a permission or a safety rule forbids it.", &[
        PolicyDenied, MountChanged, EngineDenied, NotManaged, OtherSession, SnapshotSecrets, PushRefused, PolicyMissing,
        DevcontainerRefused, PathEscape, PermissionDenied, RootRefused,
    ]),
    class("Conflict", "The object is in another state than the call needs.", &[
        NameTaken, NotRunning, InUse, ImageChanged, PortTaken, ApplyConflict, PathExists, BranchConflict, NoCommits,
        FileExists, ReadRequired, StaleRead,
    ]),
    class("Busy", "Another call holds it, or it failed a moment ago: try again later.", &[
        Busy, PullBackoff, CrashLoop, SandboxUnavailable,
    ]),
    class("LimitReached", "A limit of number, size, memory or budget is reached.", &[
        LimitReached, QuotaExceeded, MountTooLarge, RequestTooLarge, ContextOverflow, MaxTurns, BudgetExhausted,
        ContentTooLarge, DiskFull, OutOfMemory, CodeTooLarge,
    ]),
    class("TimedOut", "It took too long, and was ended.", &[
        EngineTimeout, PullTimeout, CommandTimedOut, WallLimit, TimedOut,
    ]),
    class("ConfigInvalid", "The configuration or the state directory cannot be used.", &[
        ConfigInvalid, NewerVersion, ExecutionModeInvalid, ExecutionModeUnavailable,
    ]),
    class("EngineFailed", "The container engine is missing or failed.", &[
        NotReady, EngineUnavailable, EngineTooOld, EngineFailed, NodeLost,
    ]),
    class("ImageFailed", "An image could not be pulled or built.", &[
        PullFailed, BaseBuildFailed, BaseImageBuildFailed, PackagesFailed,
    ]),
    class("StartFailed", "A container, a stack or a sandbox did not become usable.", &[
        CreateFailed, ReadinessFailed, MountFailed, GuestFailed, ComposeFailed, Unhealthy, SandboxNotReady,
    ]),
    class("Ended", "The container, session, shell or worker ended during the call.", &[
        SessionEnded, ShellEnded, GuestLost, FilesRemoved, ContainerRemoved, SandboxLost, WorkerDied, NoResult,
        WorkspaceLost,
    ]),
    class("Incomplete", "Files were not all copied, saved, written or removed.", &[
        ApplyFailed, CopyFailed, SaveFailed, CleanupFailed, Partial, WriteFailed, TeardownIncomplete, RmIncomplete,
    ]),
    class("Unsupported", "The engine, the image or this build cannot do it.", &[
        Unsupported, NoShell, ComposeUnavailable, GitMissing, SchemaUnsupported, NotSupported, LanguageUnavailable,
    ]),
    class("RemoteFailed", "A git remote, a model provider or the proxy to it failed.", &[
        RepoCorrupt, FetchFailed, HostUnresolved, PushRejected, ProxyRequired, LlmUnauthorized, LlmFailed, ProxyUnreachable,
    ]),
    class("RunFailed", "A snippet, or a command or run of a sandbox, failed.", &[
        CommandFailed, SchemaViolation, EvaluationFailed, RunFailed,
    ]),
    class("Cancelled", "The call was withdrawn.", &[Cancelled]),
    class("InternalError", "A fault of Coracle, or damage that it found.", &[Internal, AuditBroken, EgressNotEnforced]),
];
