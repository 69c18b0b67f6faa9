//! How much a container may spend on models.

use serde::{Deserialize, Serialize};

/// How much may be spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Tokens in and out together.
    pub tokens: Option<u64>,
    /// Of what the provider says that it costs.
    pub cost_usd: Option<f64>,
}
