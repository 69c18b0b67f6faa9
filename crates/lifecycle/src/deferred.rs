//! An end that did not come about, and when it is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::ClockReading;

/// What could not be ended is tried again after so long, and after twice as long each time, up to the maximum.
const RETRY_PAUSE: Duration = Duration::from_secs(60);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(6 * 60 * 60);

/// An end that did not come about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferred {
    /// How often it was tried.
    times: u32,
    /// When last.
    at: ClockReading,
}

impl Deferred {
    /// After one more try.
    pub(crate) fn after(earlier: Option<&Self>, now: &ClockReading) -> Self {
        Self { times: earlier.map_or(0, |it| it.times).saturating_add(1), at: now.clone() }
    }

    /// It may be tried again.
    pub(crate) fn is_over(&self, now: &ClockReading) -> bool {
        let pause = RETRY_PAUSE.saturating_mul(1 << self.times.saturating_sub(1).min(16)).min(MAX_RETRY_PAUSE);
        now.is_past(&self.at, pause, pause)
    }
}
