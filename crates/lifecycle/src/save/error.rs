//! Why something cannot be saved.

use coracle_types::Error as Engine;

/// Why something cannot be saved.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// It has more bytes than one save may have.
    #[error("it has more bytes than one save may have")]
    TooLarge,
    /// There is no time left.
    #[error("it takes too long")]
    TooSlow,
    /// A file of the state directory cannot be written or read.
    #[error("the state directory: {0}")]
    Disk(#[source] std::io::Error),
    /// The container cannot be read.
    #[error(transparent)]
    Inside(#[from] Engine),
    /// What the container returned cannot be used.
    #[error("{0}")]
    Invalid(&'static str),
}

/// A path that cannot be saved, and why.
#[derive(Debug)]
pub(super) struct PathError {
    pub(super) path: String,
    pub(super) error: SaveError,
}
