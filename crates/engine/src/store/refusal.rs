//! Why an archive is refused.

use coracle_archive::tar::ReadError;
use serde::{Deserialize, Serialize};

/// Why the archive of a layer is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum LayerRefusal {
    /// The content does not match the requested digest.
    #[error("its content is {found}")]
    OtherContent { found: String },
    /// It is not an archive, or is truncated.
    #[error("its archive cannot be read: {0}")]
    Unreadable(String),
    /// It contains more than allowed.
    #[error("it has more than {limit} {what}")]
    TooLarge { what: String, limit: u64 },
    /// A file exceeds the limit of bytes.
    #[error("it has more than {limit} bytes with its file `{path}`, which has {size} bytes, holes included")]
    FileTooLarge { path: String, size: u64, limit: u64 },
    /// The path of an entry leads outside, or through something that is not a directory.
    #[error("its entry `{path}` {why}")]
    Entry { path: String, why: String },
}

impl LayerRefusal {
    /// The refusal of one entry.
    pub(crate) fn entry(path: &[u8], why: &str) -> Self {
        ReadError::entry(path, why).into()
    }
}

impl From<ReadError> for LayerRefusal {
    fn from(err: ReadError) -> Self {
        match err {
            ReadError::TooLarge { what, limit } => Self::TooLarge { what, limit },
            ReadError::Entry { path, why } => Self::Entry { path, why },
            ReadError::Io(err) => Self::Unreadable(err.to_string()),
            other => Self::Unreadable(other.to_string()),
        }
    }
}
