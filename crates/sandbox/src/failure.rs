//! Failures and warnings of sandboxes.

pub use coracle_runtime::failure::{Code, Failure};
use serde::{Deserialize, Serialize};

/// The result of a step.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// A limit that the same call reaches again.
#[cfg(feature = "host")]
pub(crate) fn over_limit(message: impl Into<String>) -> Failure {
    Failure { retryable: false, ..Failure::new(Code::LimitReached, message) }
}

/// A warning beside a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxWarning {
    /// What a caller can branch on.
    pub code: String,
    /// A sentence.
    pub message: String,
}

impl SandboxWarning {
    /// A warning.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}
