//! Why an archive is refused.

use std::fmt;
use std::io;

use crate::oci::DocumentError;
use crate::tar::ReadError;

/// An image archive that cannot be read or written.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ImageArchiveError {
    /// It is another kind of file.
    #[error("it is not an OCI image archive: {0}")]
    NotOci(String),
    /// A document or a header in it is wrong.
    #[error("its {what} is wrong: {why}")]
    Malformed {
        /// Which.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// The content has another digest or length than the name of the blob.
    #[error("its blob sha256:{0} is damaged: its content has another digest")]
    Damaged(String),
    /// It has no image for this machine.
    #[error("it has no image for {wanted}, but for {found}")]
    Platform {
        /// This machine's platform.
        wanted: String,
        /// What it has.
        found: String,
    },
    /// It has more than one image.
    #[error("it has {0} images, and only an archive of one image can be used")]
    Several(usize),
    /// The caller gave up.
    #[error("it was cancelled")]
    Cancelled,
    /// The system refused.
    #[error("cannot read or write it: {0}")]
    Io(#[from] io::Error),
}

impl ImageArchiveError {
    pub(super) fn malformed(what: &'static str, why: impl fmt::Display) -> Self {
        Self::Malformed { what, why: why.to_string() }
    }
}

impl From<ReadError> for ImageArchiveError {
    fn from(err: ReadError) -> Self {
        match err {
            ReadError::NotTar => Self::NotOci(err.to_string()),
            ReadError::Io(err) => Self::Io(err),
            other => Self::malformed("tar", other),
        }
    }
}

impl From<DocumentError> for ImageArchiveError {
    fn from(err: DocumentError) -> Self {
        match err {
            DocumentError::Malformed { what, why } => Self::Malformed { what, why },
            DocumentError::NoPlatform { wanted, offered } => Self::Platform { wanted, found: offered },
            DocumentError::WrongDigest { expected, .. } => Self::Damaged(expected.hex().to_owned()),
            other => Self::malformed("manifest", other),
        }
    }
}
