//! Errors of reading a tar.

use std::io;

/// A tar that is refused or cannot be read.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It does not begin with a header.
    #[error("it is no tar, or a compressed one")]
    NotTar,
    /// A header is invalid, or the archive is truncated.
    #[error("{0}")]
    Malformed(String),
    /// It exceeds a limit.
    #[error("it has more than {limit} {what}")]
    TooLarge {
        /// What exceeds it.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// One entry is invalid.
    #[error("its entry `{path}` {why}")]
    Entry {
        /// Its path, escaped.
        path: String,
        /// The reason.
        why: String,
    },
    /// An I/O error.
    #[error("cannot read it: {0}")]
    Io(#[source] io::Error),
}

impl ReadError {
    /// The refusal of one entry.
    #[must_use]
    pub fn entry(path: &[u8], why: &str) -> Self {
        Self::Entry { path: path.escape_ascii().to_string(), why: why.to_owned() }
    }

    pub(super) fn malformed(why: &str) -> Self {
        Self::Malformed(why.to_owned())
    }

    pub(super) fn breaks_off() -> Self {
        Self::malformed("it is truncated")
    }
}

impl From<io::Error> for ReadError {
    fn from(err: io::Error) -> Self {
        match err.downcast::<Self>() {
            Ok(own) => own,
            Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => Self::breaks_off(),
            Err(err) => Self::Io(err),
        }
    }
}

impl From<ReadError> for io::Error {
    fn from(err: ReadError) -> Self {
        match err {
            ReadError::Io(err) => err,
            other => Self::new(io::ErrorKind::InvalidData, other),
        }
    }
}
