//! How long slots last.

use std::time::Duration;

use crate::slot::SlotRole;

/// How long things may take, and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLimits {
    /// An unused container.
    pub idle: Duration,
    /// An unused sandbox.
    pub sandbox_idle: Duration,
    /// A slot of a session, with its volume, from when that was made.
    pub lifetime: Duration,
    /// The same for a sandbox.
    pub sandbox_lifetime: Duration,
    /// A lease without renewal.
    pub lease: Duration,
}

impl SlotLimits {
    pub(super) fn idle_of(&self, role: SlotRole) -> Duration {
        if role == SlotRole::Sandbox { self.sandbox_idle } else { self.idle }
    }

    pub(super) fn lifetime_of(&self, role: SlotRole) -> Duration {
        if role == SlotRole::Sandbox { self.sandbox_lifetime } else { self.lifetime }
    }
}

impl Default for SlotLimits {
    /// 15 minutes, 60 minutes, 8 hours, 7 days, 120 seconds.
    fn default() -> Self {
        let minutes = |it: u64| Duration::from_secs(it * 60);
        Self {
            idle: minutes(15),
            sandbox_idle: minutes(60),
            lifetime: minutes(8 * 60),
            sandbox_lifetime: minutes(7 * 24 * 60),
            lease: minutes(2),
        }
    }
}
