//! Why a directory of the host was not copied.

use coracle_runtime::Problem;
use coracle_types::Error;

/// Why a directory of the host was not copied.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Two of them have the same file.
    #[error("Two host mounts have the file {0}.")]
    Twice(String),
    /// A link leads to what may not be copied.
    #[error("Host path is outside the allowed roots or missing.")]
    Refused {
        /// The link.
        path: String,
        /// The violated rule.
        problem: Box<Problem>,
    },
    /// More bytes or files than it may have.
    #[error("Host mount exceeded the configured byte budget.")]
    TooLarge {
        /// The user's name for it.
        name: String,
        /// The limit.
        limit: u64,
        /// The unit of the limit.
        of: &'static str,
    },
    /// A file could not be read, or is not what it was a moment ago.
    #[error("Failed to read mounted file {path}.")]
    Read {
        /// The path.
        path: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The workspace did not take them.
    #[error("Failed to copy the host mounts in: {0}")]
    Inside(String),
    /// The connection to the guest.
    #[error(transparent)]
    Link(#[from] Error),
}
