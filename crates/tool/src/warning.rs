//! What a successful call wants to be known.

use serde::Serialize;

/// Something that a successful call wants to be known (containers.md 1.8).
#[derive(Clone, Debug, Serialize)]
pub struct Warning {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Warning {
    /// With its code and one sentence.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
