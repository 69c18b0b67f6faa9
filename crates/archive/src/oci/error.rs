//! Why an image is refused.

use std::{fmt, io};

use crate::Sha256Digest;
use crate::tar::ReadError;

/// An image that is refused, or that cannot be read or written.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It is another kind of file.
    #[error("it is not an OCI image archive: {0}")]
    NotImages(String),
    /// It has no such image or file.
    #[error("{place} has no `{what}`")]
    NotFound {
        /// What was searched.
        place: &'static str,
        /// What is missing, escaped.
        what: String,
    },
    /// It has not one image alone.
    #[error("it has {0} images, and only an archive of one image can be used")]
    Several(usize),
    /// No image runs on this platform.
    #[error("it is for {offered}, and this machine is {wanted}")]
    NoPlatform {
        /// The platform that was asked for.
        wanted: String,
        /// Those of the image.
        offered: String,
    },
    /// It is not what it has to be.
    #[error("its {what} is malformed: {why}")]
    Malformed {
        /// Which document.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// No image has such a part.
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
    /// A layer that lies elsewhere than its image.
    #[error(
        "its layer {digest} may not be distributed by registries (`{media_type}`); use an image without such layers"
    )]
    ForeignLayer {
        /// The layer.
        digest: Sha256Digest,
        /// Its type.
        media_type: String,
    },
    /// It has more bytes than allowed.
    #[error("its {what} is larger than {limit} bytes")]
    TooLarge {
        /// Which part.
        what: String,
        /// The most that is allowed.
        limit: u64,
    },
    /// It has another length than its descriptor says.
    #[error("its {what} has {found} bytes instead of {expected}")]
    WrongSize {
        /// Which part.
        what: String,
        /// The descriptor's length.
        expected: u64,
        /// Its own.
        found: u64,
    },
    /// It has another digest than its descriptor says.
    #[error("its {what} has the digest {found} instead of {expected}: it is damaged, or another one")]
    WrongDigest {
        /// Which part.
        what: String,
        /// The descriptor's digest.
        expected: Sha256Digest,
        /// Its own.
        found: Sha256Digest,
    },
    /// The caller gave up.
    #[error("it was cancelled")]
    Cancelled,
    /// The system refused.
    #[error("cannot read or write it: {0}")]
    Io(#[from] io::Error),
}

impl ImageError {
    /// A document that is not what it has to be.
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
