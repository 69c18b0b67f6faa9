//! What is noted to end a container in time.

use serde::{Deserialize, Serialize};

use crate::clock::ClockReading;
use crate::deferred::Deferred;

/// What is noted in a record to end it in time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// When a call last used the container.
    pub used: Option<ClockReading>,
    /// When the process that it belongs to was first seen dead.
    pub orphaned: Option<ClockReading>,
    /// When the container was first seen to be gone.
    pub missing: Option<ClockReading>,
    /// Its time was over, and it could not be ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put_off: Option<Deferred>,
}

impl Lease {
    /// It could not be ended a moment ago.
    pub(crate) fn is_put_off(&self, now: &ClockReading) -> bool {
        self.put_off.as_ref().is_some_and(|it| !it.is_over(now))
    }
}
