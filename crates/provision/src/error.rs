//! Errors that fail a `create`; all others are lines in the report.

/// The result of a step that the container cannot do without.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Failures that leave no usable container.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The image does not contain that user.
    #[error("no user `{0}` in the image")]
    UserNotFound(String),
    /// A process of the exec user failed.
    #[error("the exec user does not work: {0}")]
    User(String),
    /// The work directory cannot be used.
    #[error("the work directory cannot be used: {0}")]
    Workspace(String),
    /// The engine refused or failed.
    #[error(transparent)]
    Runtime(#[from] coracle_types::Error),
}
