//! Compares the size of a workspace with its limit (`workspace.max_bytes`).
//!
//! Few engines keep a volume small, so it is looked at after what may have written, by the guest and beside the calls.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle_protocol::workspace::SearchLimits;
use coracle_types::ByteSize;
use serde_json::json;
use tokio::time::Instant;

use crate::Warning;

/// Limits of a scan. Files beyond them do not count.
pub(crate) const BOUNDS: SearchLimits = SearchLimits { most: 0, entries: 1_000_000, within_ms: 2000 };

/// The shortest pause between two scans.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);

/// The pause in multiples of a scan's duration, so that scans stay cheap.
const TIMES: u32 = 20;

/// The disk usage of a workspace, against its limit.
#[derive(Debug, Default)]
pub(crate) struct DiskQuota(Mutex<DiskUsage>);

#[derive(Debug, Default)]
struct DiskUsage {
    looking: bool,
    rests_until: Option<Instant>,
    bytes: u64,
}

impl DiskQuota {
    fn seen(&self) -> MutexGuard<'_, DiskUsage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a scan may start now. No other may until [`record_scan`](Self::record_scan).
    pub(crate) fn try_begin_scan(&self) -> bool {
        let mut seen = self.seen();
        let rests = seen.looking || seen.rests_until.is_some_and(|it| Instant::now() < it);
        seen.looking |= !rests;
        !rests
    }

    pub(crate) fn record_scan(&self, bytes: Option<u64>, took: Duration) {
        let mut seen = self.seen();
        seen.looking = false;
        seen.rests_until = Some(Instant::now() + (took * TIMES).max(PAUSE));
        seen.bytes = bytes.unwrap_or(seen.bytes);
    }

    /// Starts over after the files were lost.
    pub(crate) fn reset(&self) {
        self.seen().bytes = 0;
    }

    /// The warning if the usage is above the limit.
    pub(crate) fn warning(&self, most: Option<ByteSize>) -> Option<Warning> {
        let (bytes, most) = (self.seen().bytes, most?);
        (bytes > most.0).then(|| full(bytes, most))
    }
}

fn full(bytes: u64, most: ByteSize) -> Warning {
    let mib = |it: u64| it.div_ceil(1 << 20);
    let message = format!(
        "The workspace holds {} MiB, more than its {} MiB. Remove what is not needed.",
        mib(bytes),
        mib(most.0)
    );
    let details = json!({ "bytes": bytes, "max_bytes": most });
    let details = details.as_object().cloned().unwrap_or_default();
    Warning { details, ..Warning::new("disk_full", message) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coracle_types::ByteSize;

    use super::DiskQuota;

    #[tokio::test(start_paused = true)]
    async fn a_look_is_followed_by_a_rest_that_is_as_long_as_it_was_dear() {
        let quota = DiskQuota::default();
        assert!(quota.try_begin_scan() && !quota.try_begin_scan(), "one at a time");
        quota.record_scan(Some(3 << 20), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(19)).await;
        assert!(!quota.try_begin_scan());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(quota.try_begin_scan());
        let warning = |most| quota.warning(most).map(|it| it.message);
        assert_eq!(warning(None), None);
        assert_eq!(warning(Some(ByteSize::mib(3))), None);
        let expected = "The workspace holds 3 MiB, more than its 2 MiB. Remove what is not needed.";
        assert_eq!(warning(Some(ByteSize::mib(2))).unwrap(), expected);
        quota.record_scan(None, Duration::ZERO);
        assert!(warning(Some(ByteSize::mib(2))).is_some(), "a look that failed says nothing new");
        quota.reset();
        assert_eq!(warning(Some(ByteSize::mib(2))), None);
    }
}
