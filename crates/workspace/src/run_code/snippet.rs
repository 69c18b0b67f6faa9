//! A snippet that was checked.

use std::time::Duration;

use crate::Language;

/// Between TERM and KILL.
pub(super) const GRACE: Duration = Duration::from_secs(2);

/// A snippet that may run.
#[derive(Debug)]
pub(super) struct Snippet {
    pub(super) code: String,
    pub(super) language: Language,
    pub(super) timeout: Duration,
    pub(super) stdin: Option<String>,
}
