//! Why there is no profile.

use super::purpose::Purpose;

/// Why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Neither built in nor configured.
    #[error("no profile `{purpose}`; there are {}", known.iter().map(Purpose::as_str).collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The requested purpose.
        purpose: Purpose,
        /// The existing purposes.
        known: Vec<Purpose>,
    },
    /// A configured profile that is not built in has to name an image.
    #[error("profile `{0}` names no image")]
    NoImage(Purpose),
    /// `amplifier_version` is not a version.
    #[error("`{}` is no version: letters, digits, `.`, `+`, `!` and `-`, at most 64", .0.escape_debug())]
    Version(String),
    /// `try-repo` refers to another profile, which has to be detected first.
    #[error("`{0}` has to be detected first")]
    Detected(Purpose),
}
