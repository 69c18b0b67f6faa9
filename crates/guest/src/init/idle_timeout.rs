//! Ends an idle guest, so that an abandoned container costs no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::server::services::Supervisor;

/// Checks during one idle timeout.
const CHECKS: u32 = 8;

/// Limit of the interval between checks.
const MAX_INTERVAL: Duration = Duration::from_secs(15);

/// Number of open connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionCount(Arc<AtomicUsize>);

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(ConnectionCount);

impl ConnectionCount {
    pub(crate) fn add(&self) -> ConnectionGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        ConnectionGuard(self.clone())
    }

    fn is_zero(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns after `lifeline` without a connection or a running command.
pub(crate) async fn wait_until_idle(supervisor: &Supervisor, connections: &ConnectionCount, lifeline: Duration) {
    let mut since = Instant::now();
    while since.elapsed() < lifeline {
        sleep(MAX_INTERVAL.min(lifeline / CHECKS)).await;
        if !connections.is_zero() || supervisor.jobs.is_busy() {
            since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::{ConnectionCount, wait_until_idle};
    use crate::Container;
    use crate::server::services::Supervisor;

    #[tokio::test(start_paused = true)]
    async fn a_guest_exits_only_after_the_idle_timeout() {
        let dir = tempfile::tempdir().unwrap();
        let (container, _) = Container::new(dir.path(), Vec::new()).unwrap();
        let supervisor = Supervisor::new(Arc::new(container), dir.path());
        let (connections, lifeline) = (ConnectionCount::default(), Duration::from_secs(1800));
        let idle = wait_until_idle(&supervisor, &connections, lifeline);
        tokio::pin!(idle);
        let guard = connections.add();
        assert!(timeout(10 * lifeline, idle.as_mut()).await.is_err(), "a connection is open");
        drop(guard);
        let begun = Instant::now();
        idle.await;
        assert!(begun.elapsed() >= lifeline - super::MAX_INTERVAL && begun.elapsed() <= lifeline + super::MAX_INTERVAL);
    }
}
