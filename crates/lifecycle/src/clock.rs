//! The clocks that are read.

use std::time::Duration;

use jiff::Timestamp;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

/// Counts while the machine sleeps, too.
#[cfg(target_os = "linux")]
const SINCE_BOOT: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

/// The time, as answers and labels tell it.
pub(crate) fn now() -> jiff::Timestamp {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Millisecond).unwrap_or(now)
}

/// A moment by both clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// By the wall clock, which anybody may set.
    pub wall: Timestamp,
    /// The run of the machine; empty if unknown.
    pub boot: String,
    /// Seconds that this run had lasted.
    pub up_s: u64,
}

impl ClockReading {
    /// This one.
    #[must_use]
    pub fn now() -> Self {
        let up = rustix::time::clock_gettime(SINCE_BOOT);
        let up_s = u64::try_from(up.tv_sec).unwrap_or(0);
        Self { wall: Timestamp::now(), boot: coracle_types::boot_id().to_owned(), up_s }
    }

    /// Whether so much time has passed for certain. Within one run of the machine both clocks have to say so. In a later
    /// run the wall clock alone can; it is believed once the machine has been up for `settling`.
    pub(crate) fn is_past(&self, earlier: &Self, time: Duration, settling: Duration) -> bool {
        let by_wall = Duration::try_from(self.wall.duration_since(earlier.wall)).unwrap_or_default() >= time;
        let up = match (self.boot.is_empty(), self.boot == earlier.boot) {
            (true, _) => true,
            (false, true) => Duration::from_secs(self.up_s.saturating_sub(earlier.up_s)) >= time,
            (false, false) => Duration::from_secs(self.up_s) >= settling,
        };
        by_wall && up
    }
}
