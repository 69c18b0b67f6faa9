//! Failures of the store, by what a caller can do about them.

use std::io;

use coracle_archive::oci::ImageError;
use coracle_types::ImageId;

use super::{DiffId, LayerRefusal};

/// The result of an operation of the store.
pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The archive of a layer is refused; nothing of it is stored.
    #[error("layer {layer} is refused: {refusal}")]
    Refused { layer: String, refusal: LayerRefusal },
    /// A file of a container is too large for an image.
    #[error(
        "the container's file `{path}` has {size} bytes, holes included, and with it the layer has more than {limit}; \
         shorten or remove the file, or keep it in a volume"
    )]
    FileTooLarge { path: String, size: u64, limit: u64 },
    /// An image's configuration is invalid, or does not match its layers.
    #[error("the image's configuration is refused: {0}")]
    Configuration(String),
    /// The image is not in this store.
    #[error("no image {0}")]
    NoSuchImage(ImageId),
    /// The layer is not in this store.
    #[error("no layer {0}")]
    NoSuchLayer(DiffId),
    /// A container or another process uses it.
    #[error("image {image} is in use by {user}")]
    InUse { image: ImageId, user: String },
    /// A removal by id would remove names in several repositories.
    #[error("image {0} has names in several repositories; remove it by name")]
    SeveralRepositories(ImageId),
    /// A file of the store could not be read or written.
    #[error("{what}: {source}")]
    Io { what: &'static str, source: io::Error },
}

impl StoreError {
    /// For `map_err`: an I/O error during the operation `what`.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

impl From<ImageError> for StoreError {
    fn from(err: ImageError) -> Self {
        Self::Configuration(err.to_string())
    }
}
