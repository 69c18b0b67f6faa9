//! How much a container may spend on models.

use serde::{Deserialize, Serialize};

/// The limits of a container's usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Input and output tokens together.
    pub tokens: Option<u64>,
    /// Costs as reported by the provider.
    pub cost_usd: Option<f64>,
}
