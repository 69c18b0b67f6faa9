//! Why an archive is refused.

use coracle_archive::tar::ReadError;
use serde::{Deserialize, Serialize};

/// Why the archive of a layer is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub(crate) enum LayerRefusal {
    /// The content is not the requested one.
    #[error("its content is {found}")]
    OtherContent { found: String },
    /// It is no archive, or breaks off.
    #[error("its archive cannot be read: {0}")]
    Unreadable(String),
    /// It holds more than allowed.
    #[error("it has more than {limit} {what}")]
    TooLarge { what: String, limit: u64 },
    /// A file brings it over the limit of bytes.
    #[error("it has more than {limit} bytes with its file `{path}`, which has {size} bytes, holes included")]
    FileTooLarge { path: String, size: u64, limit: u64 },
    /// An entry would reach outside, or through something that is no directory.
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
