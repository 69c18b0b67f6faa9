//! What one look at directories of the host may cost: all that is in them may be an agent's.

use std::time::{Duration, Instant};

/// Entries that a walk looks at, bytes that are read to be compared, and time for both together.
const MAX_ENTRIES: usize = 1_000_000;
const MAX_BYTES: u64 = 512 << 20;
const WITHIN: Duration = Duration::from_secs(10);

/// What is left of it.
pub(super) struct ScanLimits {
    pub(super) entries: usize,
    pub(super) bytes: u64,
    pub(super) until: Instant,
}

impl ScanLimits {
    pub(super) fn new() -> Self {
        Self { entries: MAX_ENTRIES, bytes: MAX_BYTES, until: Instant::now() + WITHIN }
    }

    /// Another entry of a walk.
    pub(super) fn entry(&mut self) -> bool {
        self.entries = self.entries.saturating_sub(1);
        self.entries > 0 && (!self.entries.is_multiple_of(256) || self.in_time())
    }

    /// So many bytes more.
    pub(super) fn read(&mut self, bytes: u64) -> bool {
        let left = self.bytes.checked_sub(bytes);
        self.bytes = left.unwrap_or(0);
        left.is_some() && self.in_time()
    }

    fn in_time(&self) -> bool {
        Instant::now() < self.until
    }
}
