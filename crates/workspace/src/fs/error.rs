//! Errors of files, by what a caller can do about them.

use coracle_protocol::workspace::{WorkspaceError, WorkspaceErrorCode};

/// Bytes of a file that is read or written, at most.
pub const MAX_CONTENT: u64 = coracle_protocol::workspace::MAX_CONTENT;

/// The result of a file operation.
pub type Result<T, E = FsError> = std::result::Result<T, E>;

/// Failures of a [`GuestFs`](super::GuestFs).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// Nothing is there, or a directory above it is missing.
    #[error("there is no `{}`", .0.escape_debug())]
    NotFound(String),
    /// Something is there already.
    #[error("`{}` is there already", .0.escape_debug())]
    Exists(String),
    /// A file was meant.
    #[error("`{}` is a directory", .0.escape_debug())]
    IsDirectory(String),
    /// It, or something above it, is no directory.
    #[error("`{}` or something above it is no directory", .0.escape_debug())]
    NotDirectory(String),
    /// The directory holds something.
    #[error("the directory `{}` is not empty", .0.escape_debug())]
    NotEmpty(String),
    /// Nothing can be changed here.
    #[error("`{}` is read-only", .0.escape_debug())]
    ReadOnly(String),
    /// It leads outside.
    #[error("`{}` leads out of the workspace", .0.escape_debug())]
    Escape(String),
    /// There are more bytes than [`MAX_CONTENT`].
    #[error("`{}` has more than {MAX_CONTENT} bytes", .0.escape_debug())]
    TooLarge(String),
    /// It is no UTF-8.
    #[error("`{}` is no text in UTF-8", .0.escape_debug())]
    Binary(String),
    /// A path, pattern or tag is none, or what is there cannot be used so.
    #[error("`{}` {why}", what.escape_debug())]
    Invalid {
        /// The given text.
        what: String,
        /// The reason.
        why: String,
    },
    /// The user may not.
    #[error("the workspace's user may not do that with `{}`", .0.escape_debug())]
    Denied(String),
    /// No space is left.
    #[error("no space is left for `{}`", .0.escape_debug())]
    Full(String),
    /// This workspace cannot do it.
    #[error("snapshots are not supported here: {0}")]
    Unsupported(&'static str),
    /// The image's git failed; its words.
    #[error("git inside failed: {0}")]
    Git(String),
    /// Reading or writing failed in the container.
    #[error("`{}` failed: {detail}", path.escape_debug())]
    Io {
        /// The path.
        path: String,
        /// The kernel's words.
        detail: String,
    },
    /// The container or the way to it is gone. What was to change something may have done so.
    #[error("the workspace is lost")]
    Lost(#[source] Box<coracle_types::Error>),
}

impl From<coracle_types::Error> for FsError {
    fn from(err: coracle_types::Error) -> Self {
        Self::Lost(Box::new(err))
    }
}

impl FsError {
    pub(super) fn invalid(what: &str, why: impl Into<String>) -> Self {
        Self::Invalid { what: what.to_owned(), why: why.into() }
    }

    /// A trouble with what was named `path`.
    pub(super) fn from_workspace_error(trouble: WorkspaceError, path: &str) -> Self {
        let path = path.to_owned();
        match trouble.code {
            WorkspaceErrorCode::NotFound => Self::NotFound(path),
            WorkspaceErrorCode::Exists => Self::Exists(path),
            WorkspaceErrorCode::NotEmpty => Self::NotEmpty(path),
            WorkspaceErrorCode::Escape => Self::Escape(path),
            WorkspaceErrorCode::IsDirectory => Self::IsDirectory(path),
            WorkspaceErrorCode::NotDirectory => Self::NotDirectory(path),
            WorkspaceErrorCode::NotRegular => Self::invalid(&path, "is no regular file"),
            WorkspaceErrorCode::Binary => Self::Binary(path),
            WorkspaceErrorCode::TooLarge => Self::TooLarge(path),
            WorkspaceErrorCode::Full => Self::Full(path),
            WorkspaceErrorCode::Denied => Self::Denied(path),
            WorkspaceErrorCode::ReadOnly => Self::ReadOnly(path),
            WorkspaceErrorCode::BadPattern => Self::invalid(&path, format!("has a wrong pattern: {}", trouble.detail)),
            // The others are of edits, which are not done here.
            code => {
                let detail = if trouble.detail.is_empty() { format!("{code:?}") } else { trouble.detail };
                Self::Io { path, detail }
            }
        }
    }
}
