//! Work that may block, or take its time: on a thread of its own.

use std::time::Duration;

use crate::wire::{Fault, FaultCode};

/// After this time others have their turn.
pub(crate) const TURN: Duration = Duration::from_millis(100);

/// Does something where it may block or take its time.
pub(crate) async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.map_err(|_| Fault::new(FaultCode::Io, "the work broke off"))
}
