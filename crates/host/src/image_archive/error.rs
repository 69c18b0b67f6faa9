//! Why an archive is refused.

use std::fmt;
use std::io;

use crate::tar_index::TarIndexError;

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
    #[error("it has no image for linux/{wanted}, but for {found}")]
    Platform {
        /// This machine's architecture.
        wanted: &'static str,
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

impl From<TarIndexError> for ImageArchiveError {
    fn from(err: TarIndexError) -> Self {
        match err {
            TarIndexError::NotTar => Self::NotOci(err.to_string()),
            TarIndexError::Malformed(why) => Self::malformed("tar", why),
            TarIndexError::Io(err) => Self::Io(err),
        }
    }
}
