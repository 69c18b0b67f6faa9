//! Why a text goes no further.

use coracle_runtime::PolicyRefusal;

/// Why a text goes no further.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It is no Compose file, or too large for one.
    #[error("{message}")]
    Invalid {
        /// What is wrong, in one sentence.
        message: String,
        /// The line it was seen on, from 1.
        line: Option<u64>,
    },
    /// It asks for what is never read, or for files that may not be used.
    #[error(transparent)]
    Refused(#[from] PolicyRefusal),
}
