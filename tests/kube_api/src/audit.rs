//! Records everything that was sent to the server, so that a test can search it for secrets.

use std::sync::{Mutex, PoisonError};

/// One request.
#[derive(Clone, Debug)]
pub struct AuditLine {
    /// Method.
    pub method: String,
    /// Path with its query, as it was sent.
    pub uri: String,
    /// Body.
    pub body: String,
    /// Status of the response.
    pub code: u16,
}

#[derive(Debug, Default)]
pub(crate) struct Audit(Mutex<Vec<AuditLine>>);

impl Audit {
    pub(crate) fn note(&self, line: AuditLine) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    pub(crate) fn lines(&self) -> Vec<AuditLine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
