//! The first words of a connection.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::VERSION;

/// The first words of both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`]
    pub version: u32,
    /// 32 hex digits that the host chose; the guest gives them back.
    pub nonce: String,
    /// Random, of this run of the guest: a container that was started anew has another one. Empty from the host.
    #[serde(default)]
    pub run: String,
    /// How output is kept. Only the host says it.
    #[serde(default)]
    pub keep: Option<Retention>,
}

/// How much of what commands print is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Bytes of each job.
    pub bytes: u64,
    /// Bytes of all jobs together; the oldest finished one goes first.
    pub total: u64,
    /// Seconds after the end of a job.
    pub for_s: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { bytes: 64 << 20, total: 512 << 20, for_s: 3600 }
    }
}
