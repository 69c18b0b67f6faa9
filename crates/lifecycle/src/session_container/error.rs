//! Why there is no room.

use std::time::Duration;

use coracle_types::{ContainerName, Ids};

use super::Reason;
use crate::Error;

/// An error that only the caller understands.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no room.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum SlotError {
    /// It is over, or just being ended.
    #[error("the session `{0}` has ended")]
    Ended(ContainerName),
    /// One container after the other failed.
    #[error("the container failed again and again, most recently: {}", reason.as_str())]
    CrashLoop {
        /// How the last one ended.
        reason: Reason,
        /// No other is made for so long.
        retry_after: Duration,
    },
    /// It was made, could not be used, and is removed again.
    #[error("Workspace failed readiness checks.")]
    NotReady(#[source] BoxError),
    /// It could not be made.
    #[error("the container could not be made: {0}")]
    NotMade(#[source] Error),
    /// What is in its volume is another user's.
    #[error("the files of `{session}` are those of the user {before} inside, and its containers would run as {now}")]
    OtherUser {
        /// The session.
        session: ContainerName,
        /// Whose they are.
        before: Ids,
        /// Who would run commands now.
        now: Ids,
    },
    /// The caller could not say what it is made of.
    #[error("{0}")]
    Plan(#[source] BoxError),
    /// The caller could not fill it.
    #[error("{0}")]
    VolumeInit(#[source] BoxError),
    /// Anything else.
    #[error(transparent)]
    Lifecycle(#[from] Error),
}

impl From<crate::StoreError> for SlotError {
    fn from(err: crate::StoreError) -> Self {
        Self::Lifecycle(err.into())
    }
}

impl From<coracle_types::Error> for SlotError {
    fn from(err: coracle_types::Error) -> Self {
        Self::Lifecycle(err.into())
    }
}
