//! A container that no other call changes.

use std::sync::Arc;

use coracle_host::lock::Lock;
use coracle_types::Result;

use super::containers::StoredContainer;
use super::freeze::FreezeLock;
use super::start::lock_whole;
use crate::engine::Engine;

/// A container with the locks that keep other calls from removing, starting or freezing it.
pub(crate) struct LockedContainer {
    pub(crate) container: StoredContainer,
    pub(crate) freeze: FreezeLock,
    _lock: Lock,
}

impl LockedContainer {
    pub(crate) async fn lock(engine: &Arc<Engine>, container: StoredContainer, verb: &'static str) -> Result<Self> {
        let lock = lock_whole(engine, &container, verb).await?;
        Ok(Self { freeze: FreezeLock::take(&container).await?, container, _lock: lock })
    }
}
