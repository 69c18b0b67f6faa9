//! Work that may block, or take its time: on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::protocol::{ErrorCode, RpcError};

/// After this time others have their turn.
pub(crate) const TURN: Duration = Duration::from_millis(100);

/// Does something where it may block or take its time.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, RpcError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|_| RpcError::new(ErrorCode::Io, "the work broke off"))
}

/// Set when the caller no longer waits for the work.
#[derive(Clone, Debug, Default)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sets it when it is dropped.
pub(crate) struct StopOnDrop(pub(crate) CancelFlag);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}
