//! Errors of reading a Compose file.

use coracle_runtime::PolicyRefusal;

/// Why a file is not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is not a Compose file, or is too large.
    #[error("{message}")]
    Invalid {
        /// What is wrong, in one sentence.
        message: String,
        /// The line of the error, from 1.
        line: Option<u64>,
    },
    /// It uses a key that is never read, or files that may not be used.
    #[error(transparent)]
    Refused(#[from] PolicyRefusal),
}
