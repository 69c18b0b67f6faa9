//! What a container used at a time.

use serde::{Deserialize, Serialize};

/// A sample that is older, in milliseconds, is dropped.
pub(crate) const RETENTION_MS: i64 = 3_600_000;

/// What a container used at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UsageSample {
    /// Milliseconds since 1970.
    pub(crate) at: i64,
    pub(crate) cpu_percent: Option<f64>,
    pub(crate) memory_bytes: Option<u64>,
}

/// A sample, and whose it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerSample {
    pub(crate) container: String,
    pub(crate) id: String,
    #[serde(flatten)]
    pub(crate) sample: UsageSample,
}
