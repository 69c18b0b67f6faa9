//! Errors of the API's answers.

use std::io;

use coracle_types::Error;
use hyper::StatusCode;

pub(crate) type ApiResult<T> = Result<T, ApiFault>;

/// The program is used after each of them.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiFault {
    #[error("there is no socket")]
    Missing,
    #[error("it belongs to the user with id {0}")]
    ForeignOwner(u32),
    #[error("it refuses connections ({0})")]
    Refused(io::Error),
    #[error("it did not answer in time")]
    Slow,
    #[error("it does not speak HTTP as expected ({0})")]
    Protocol(#[from] hyper::Error),
    #[error("its answer is too large")]
    TooLarge,
    #[error("it answers with the status {0}")]
    Status(StatusCode),
    #[error("its answer cannot be read ({0})")]
    Unreadable(#[from] Error),
    #[error("its service and the program have no container in common")]
    OtherStorage,
    #[error("a name cannot be part of a URL")]
    Unencodable,
    #[error("a container is listed and cannot be inspected")]
    Contradiction,
}

impl ApiFault {
    /// Whether the next read would meet the same. A socket that is missing costs nothing to look for.
    pub(super) fn is_of_the_socket(&self) -> bool {
        match self {
            Self::Missing | Self::Unencodable | Self::Contradiction | Self::OtherStorage => false,
            Self::Status(status) => !status.is_client_error() || *status == StatusCode::NOT_FOUND,
            Self::ForeignOwner(_)
            | Self::Refused(_)
            | Self::Slow
            | Self::Protocol(_)
            | Self::TooLarge
            | Self::Unreadable(_) => true,
        }
    }
}
