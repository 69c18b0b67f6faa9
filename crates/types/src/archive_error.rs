//! Errors of reading and writing tars.

use std::io;

/// A transfer that could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// More entries than allowed.
    #[error("more than {0} files")]
    TooMany(u64),
    /// More bytes than allowed.
    #[error("more than {0} bytes")]
    TooLarge(u64),
    /// A file could not be read or written, or the archive is truncated.
    #[error("cannot copy `{}`", path.escape_debug())]
    Io {
        /// The file.
        path: String,
        /// The system's error.
        #[source]
        source: io::Error,
    },
}
