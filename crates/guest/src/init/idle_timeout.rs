//! Ends an idle guest, so that an abandoned container costs no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::server::services::Supervisor;

/// Looks in the time that a guest waits.
const CHECKS: u32 = 8;

/// Limit of the interval between checks.
const MAX_INTERVAL: Duration = Duration::from_secs(15);

/// Number of connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Present(Arc<AtomicUsize>);

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(Present);

impl Present {
    pub(crate) fn one_more(&self) -> ConnectionGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(self.clone())
    }

    fn is_nobody(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns after that time without a connection or a running command.
pub(crate) async fn left_alone(supervisor: &Supervisor, present: &Present, lifeline: Duration) {
    let mut since = Instant::now();
    while since.elapsed() < lifeline {
        sleep(MAX_INTERVAL.min(lifeline / CHECKS)).await;
        if !present.is_nobody() || supervisor.jobs.is_busy() {
            since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::{Present, left_alone};
    use crate::Container;
    use crate::server::services::Supervisor;

    #[tokio::test(start_paused = true)]
    async fn a_guest_leaves_only_after_its_time_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (container, _) = Container::new(dir.path(), Vec::new()).unwrap();
        let supervisor = Supervisor::new(Arc::new(container), dir.path());
        let (present, lifeline) = (Present::default(), Duration::from_secs(1800));
        let alone = left_alone(&supervisor, &present, lifeline);
        tokio::pin!(alone);
        let here = present.one_more();
        assert!(timeout(10 * lifeline, alone.as_mut()).await.is_err(), "somebody is connected");
        drop(here);
        let begun = Instant::now();
        alone.await;
        assert!(begun.elapsed() >= lifeline - super::MAX_INTERVAL && begun.elapsed() <= lifeline + super::MAX_INTERVAL);
    }
}
