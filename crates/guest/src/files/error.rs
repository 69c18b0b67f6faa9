//! What the kernel refused, in the words of the wire.

use rustix::io::Errno;

use crate::wire::space::{Trouble, TroubleCode};

/// What came of trying something.
pub(crate) type Tried<T> = Result<T, FsError>;

/// Why an act was not done, until it is answered. Errors of the kernel become one by `?`.
#[derive(Debug)]
pub(crate) struct FsError(pub(crate) Trouble);

impl FsError {
    pub(crate) fn saying(code: TroubleCode, detail: impl Into<String>) -> Self {
        Self(Trouble::saying(code, detail))
    }
}

impl From<Trouble> for FsError {
    fn from(trouble: Trouble) -> Self {
        Self(trouble)
    }
}

impl From<TroubleCode> for FsError {
    fn from(code: TroubleCode) -> Self {
        Self(Trouble::of(code))
    }
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> Self {
        Self::saying(code(errno), words(errno))
    }
}

impl From<std::io::Error> for FsError {
    fn from(error: std::io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => Self::saying(TroubleCode::Io, error.to_string()),
        }
    }
}

/// What the kernel means.
pub(super) fn code(errno: Errno) -> TroubleCode {
    match errno {
        Errno::NOENT => TroubleCode::NotFound,
        Errno::NOTDIR => TroubleCode::NotDirectory,
        Errno::ISDIR => TroubleCode::IsDirectory,
        // A link too many, or one that was put there meanwhile.
        Errno::LOOP => TroubleCode::Escape,
        Errno::EXIST => TroubleCode::Exists,
        Errno::NOTEMPTY => TroubleCode::NotEmpty,
        Errno::ACCESS | Errno::PERM | Errno::XDEV | Errno::BUSY => TroubleCode::Denied,
        Errno::ROFS => TroubleCode::ReadOnly,
        Errno::NOSPC | Errno::DQUOT => TroubleCode::Full,
        Errno::FBIG => TroubleCode::TooLarge,
        _ => TroubleCode::Io,
    }
}

/// The kernel's words.
pub(crate) fn words(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}
