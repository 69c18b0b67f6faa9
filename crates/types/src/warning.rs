//! Warnings beside a result.

use serde::{Deserialize, Serialize};

/// A warning beside a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxWarning {
    /// The code, for callers.
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
