//! What can go wrong with a snapshot, by what a caller can do about it.

use coracle_archive::oci::ImageError;
use coracle_types::SnapshotName;

/// Why there is no snapshot, or why it stays.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing has that name.
    #[error("no snapshot `{name}`")]
    NotFound {
        /// As it was named.
        name: SnapshotName,
        /// Names that differ in case only.
        near: Vec<SnapshotName>,
    },
    /// An image has that name, and it is none of our snapshots.
    #[error("snapshot `{0}` exists and is not managed by coracle")]
    NotManaged(SnapshotName),
    /// The name belongs to something already.
    #[error("a snapshot named `{name}` already exists{}", if *.ours { "" } else { " and is not ours" })]
    Taken {
        /// The name.
        name: SnapshotName,
        /// It is one of ours, which could be replaced.
        ours: bool,
    },
    /// Containers are made of it.
    #[error("snapshot `{name}` is used by {}", .by.join(", "))]
    InUse {
        /// Which.
        name: SnapshotName,
        /// Names of containers.
        by: Vec<String>,
    },
    /// The archive cannot be read or written.
    #[error("{0}")]
    Archive(#[from] ImageError),
    /// The archive has an image, and it is no snapshot.
    #[error("its image is no snapshot of coracle: {0}")]
    NoSnapshot(&'static str),
    /// The image cannot be made or kept.
    #[error(transparent)]
    Image(#[from] crate::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] coracle_types::Error),
}
