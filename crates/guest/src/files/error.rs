//! Converts the kernel's errors to those of the protocol.

use rustix::io::Errno;

use crate::protocol::workspace::{WorkspaceError, WorkspaceErrorCode};

/// The result of a file operation.
pub(crate) type OperationResult<T> = Result<T, FsError>;

/// An error before it is sent. The kernel's errors convert to it with `?`.
#[derive(Debug)]
pub(crate) struct FsError(pub(crate) WorkspaceError);

impl FsError {
    pub(crate) fn with_detail(code: WorkspaceErrorCode, detail: impl Into<String>) -> Self {
        Self(WorkspaceError::with_detail(code, detail))
    }
}

impl From<WorkspaceError> for FsError {
    fn from(error: WorkspaceError) -> Self {
        Self(error)
    }
}

impl From<WorkspaceErrorCode> for FsError {
    fn from(code: WorkspaceErrorCode) -> Self {
        Self(WorkspaceError::from_code(code))
    }
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> Self {
        Self::with_detail(code(errno), words(errno))
    }
}

impl From<std::io::Error> for FsError {
    fn from(error: std::io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::with_detail(WorkspaceErrorCode::Io, error.to_string()),
        }
    }
}

/// The code for an error of the kernel.
pub(super) fn code(errno: Errno) -> WorkspaceErrorCode {
    match errno {
        Errno::NOENT => WorkspaceErrorCode::NotFound,
        Errno::NOTDIR => WorkspaceErrorCode::NotDirectory,
        Errno::ISDIR => WorkspaceErrorCode::IsDirectory,
        // Too many links, or a link that was created concurrently.
        Errno::LOOP => WorkspaceErrorCode::Escape,
        Errno::EXIST => WorkspaceErrorCode::Exists,
        Errno::NOTEMPTY => WorkspaceErrorCode::NotEmpty,
        Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::BUSY => WorkspaceErrorCode::Denied,
        Errno::ROFS => WorkspaceErrorCode::ReadOnly,
        Errno::NOSPC | Errno::DQUOT => WorkspaceErrorCode::Full,
        Errno::FBIG => WorkspaceErrorCode::TooLarge,
        _ => WorkspaceErrorCode::Io,
    }
}

/// The system's message for an error.
pub(crate) fn words(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}
