//! Errors of reading and writing images.

use std::{fmt, io};

use crate::Sha256Digest;
use crate::tar::ReadError;

/// An image is refused, or cannot be read or written.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It is another kind of file.
    #[error("it is not an OCI image archive: {0}")]
    NotImages(String),
    /// It does not contain such an image or file.
    #[error("{place} has no `{what}`")]
    NotFound {
        /// The searched collection.
        place: &'static str,
        /// What is missing, escaped.
        what: String,
    },
    /// It does not have exactly one image.
    #[error("it has {0} images, and only an archive of one image can be used")]
    Several(usize),
    /// It has no image for this platform.
    #[error("it is for {offered}, and this machine is {wanted}")]
    NoPlatform {
        /// The requested platform.
        wanted: String,
        /// The platforms of the image.
        offered: String,
    },
    /// A document is invalid.
    #[error("its {what} is malformed: {why}")]
    Malformed {
        /// Which document.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// The media type is not known.
    #[error("its {what} has the unknown media type `{}`", media_type.escape_debug())]
    MediaType {
        /// Which part.
        what: &'static str,
        /// Its type.
        media_type: String,
    },
    /// The first format of Docker's manifests.
    #[error("it is of the obsolete manifest schema 1; push it again with a current tool")]
    SchemaOne,
    /// A layer that is stored outside of registries.
    #[error(
        "its layer {digest} may not be distributed by registries (`{media_type}`); use an image without such layers"
    )]
    ForeignLayer {
        /// The layer.
        digest: Sha256Digest,
        /// Its type.
        media_type: String,
    },
    /// It exceeds a limit.
    #[error("its {what} is larger than {limit} bytes")]
    TooLarge {
        /// Which part.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The length does not match the descriptor.
    #[error("its {what} has {found} bytes instead of {expected}")]
    WrongSize {
        /// Which part.
        what: String,
        /// The descriptor's length.
        expected: u64,
        /// The real length.
        found: u64,
    },
    /// The digest does not match the descriptor.
    #[error("its {what} has the digest {found} instead of {expected}: it is damaged, or another one")]
    WrongDigest {
        /// Which part.
        what: String,
        /// The descriptor's digest.
        expected: Sha256Digest,
        /// The real digest.
        found: Sha256Digest,
    },
    /// The caller cancelled.
    #[error("it was cancelled")]
    Cancelled,
    /// An I/O error.
    #[error("cannot read or write it: {0}")]
    Io(#[from] io::Error),
}

impl ImageError {
    /// An invalid document.
    #[must_use]
    pub fn malformed(what: &'static str, why: &dyn fmt::Display) -> Self {
        Self::Malformed { what, why: why.to_string() }
    }
}

impl From<ReadError> for ImageError {
    fn from(err: ReadError) -> Self {
        match err {
            ReadError::NotTar => Self::NotImages(err.to_string()),
            ReadError::Io(err) => Self::Io(err),
            other => Self::malformed("tar", &other),
        }
    }
}
