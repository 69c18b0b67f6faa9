//! Errors of snapshots.

use coracle_archive::oci::ImageError;
use coracle_types::SnapshotName;

/// Why there is no snapshot, or why it is not removed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No image has that name.
    #[error("no snapshot `{name}`")]
    NotFound {
        /// The requested name.
        name: SnapshotName,
        /// Names that differ only in case.
        near: Vec<SnapshotName>,
    },
    /// An image has that name, and it is no snapshot.
    #[error("snapshot `{0}` exists and is not managed by coracle")]
    NotManaged(SnapshotName),
    /// The name is taken.
    #[error("a snapshot named `{name}` already exists{}", if *.ours { "" } else { " and is not managed by Coracle" })]
    Taken {
        /// The name.
        name: SnapshotName,
        /// It is a snapshot, which could be replaced.
        ours: bool,
    },
    /// Containers were created from it.
    #[error("snapshot `{name}` is used by {}", .by.join(", "))]
    InUse {
        /// The snapshot.
        name: SnapshotName,
        /// Names of containers.
        by: Vec<String>,
    },
    /// The archive cannot be read or written.
    #[error("{0}")]
    Archive(#[from] ImageError),
    /// The archive has an image that is no snapshot.
    #[error("its image is no snapshot of coracle: {0}")]
    NoSnapshot(&'static str),
    /// The image cannot be built.
    #[error(transparent)]
    Image(#[from] crate::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] coracle_types::Error),
}
