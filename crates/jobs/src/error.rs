//! Errors of job requests.

use coracle_protocol::ErrorCode;
use coracle_types::{Error as Runtime, JobId};

/// The result of a request.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A request that failed.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The guest does not know the job: it never existed, or was evicted after its end.
    #[error("no job `{0}`")]
    NoSuchJob(JobId),
    /// The limit of running jobs is reached.
    #[error("{current} jobs run in the container, and the limit is {limit}")]
    TooMany {
        /// The limit.
        limit: u32,
        /// Jobs that run now.
        current: u32,
    },
    /// An argument is invalid, such as a pattern.
    #[error("{0}")]
    Invalid(String),
    /// The link failed, or the guest refused.
    #[error(transparent)]
    Runtime(Runtime),
}

/// Longer guest messages are cut to this length.
const MAX_SENTENCE: usize = 2048;

impl std::convert::From<Runtime> for Error {
    fn from(err: Runtime) -> Self {
        match err {
            Runtime::NoSuchJob(job) => Self::NoSuchJob(job),
            Runtime::Refused(fault) if fault.code == ErrorCode::Invalid => {
                Self::Invalid(fault.message.chars().take(MAX_SENTENCE).collect())
            }
            other => Self::Runtime(other),
        }
    }
}
