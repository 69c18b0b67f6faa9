//! Runs work that may block or take long on a separate thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::protocol::{ErrorCode, RpcError};

/// Time slice of a long search, after which other requests are served.
pub(crate) const TIME_SLICE: Duration = Duration::from_millis(100);

/// Runs blocking or long work on a thread for blocking calls.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RpcError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|_| RpcError::new(ErrorCode::Io, "the operation was aborted"))
}

/// Set when the caller no longer waits for the work.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sets the flag when dropped.
pub(crate) struct StopOnDrop(pub(crate) CancelFlag);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
