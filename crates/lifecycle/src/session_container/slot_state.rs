//! What this process knows of a slot.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_client::Link;
use coracle_runtime::ContainerRuntime;
use tokio::time::timeout;

use super::error::SlotError;
use super::record::{PATIENCE, SlotInfo, SlotRecord};
use super::registry::SessionContainers;
use crate::clock::ClockReading;
use crate::slot::SlotKey;
use crate::store::LoadOutcome;
use crate::{Engines, Error, Lock};

/// A slot as this process knows it.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Held while a container of the slot is created or removed.
    pub(super) door: tokio::sync::Mutex<()>,
    /// Calls of this process in it.
    pub(super) calls: AtomicUsize,
    pub(super) seen: Mutex<SlotCache>,
}

#[derive(Debug, Default)]
pub(super) struct SlotCache {
    /// What the last look found.
    pub(super) there: Option<LiveContainer>,
    /// When a call of this process last began or ended.
    pub(super) used: Option<ClockReading>,
    /// When that was last written down.
    pub(super) written: Option<tokio::time::Instant>,
}

/// A container that answered.
#[derive(Clone, Debug)]
pub(super) struct LiveContainer {
    pub(super) link: Link,
    pub(super) view: SlotInfo,
    pub(super) spec_hash: String,
}

impl Slot {
    pub(super) fn seen(&self) -> MutexGuard<'_, SlotCache> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn used(&self) {
        self.seen().used = Some(ClockReading::now());
    }

    pub(super) fn is_called(&self) -> bool {
        self.calls.load(Ordering::Relaxed) > 0
    }
}

/// A slot that no other call uses for as long as this is held.
#[derive(Debug)]
pub(super) struct ClaimedSlot<'a> {
    pub(super) record: Box<SlotRecord>,
    _door: tokio::sync::MutexGuard<'a, ()>,
    _lock: Lock,
}

impl SessionContainers {
    /// Waits until no other call holds a slot. `None` where there is no such slot.
    pub(super) async fn claim<'a>(
        &self,
        slot: &'a Slot,
        key: SlotKey<'_>,
    ) -> Result<Option<ClaimedSlot<'a>>, SlotError> {
        let busy = |_| Error::Busy { name: key.session.to_string() };
        let _door = timeout(PATIENCE, slot.door.lock()).await.map_err(busy)?;
        let _lock = self.store.lock_slot(key).await?;
        let LoadOutcome::Record(record) = self.store.load_slot(key)? else { return Ok(None) };
        Ok(Some(ClaimedSlot { record, _door, _lock }))
    }

    /// The same, unless another call holds it.
    pub(super) fn try_claim<'a>(&self, slot: &'a Slot, key: SlotKey<'_>) -> Result<Option<ClaimedSlot<'a>>, SlotError> {
        let Ok(_door) = slot.door.try_lock() else { return Ok(None) };
        let Some(_lock) = self.store.try_lock_slot(key)? else { return Ok(None) };
        let LoadOutcome::Record(record) = self.store.load_slot(key)? else { return Ok(None) };
        Ok(Some(ClaimedSlot { record, _door, _lock }))
    }

    /// Whether another call holds a slot.
    pub(super) fn is_claimed(&self, key: SlotKey<'_>) -> bool {
        let slot = self.slot(key);
        matches!(self.try_claim(&slot, key), Ok(None))
    }

    /// Changes the record of a slot, unless another call holds it.
    pub(super) fn change(&self, key: SlotKey<'_>, change: impl FnOnce(&mut SlotRecord)) -> Result<(), SlotError> {
        let slot = self.slot(key);
        let Some(mut claimed) = self.try_claim(&slot, key)? else { return Ok(()) };
        change(&mut claimed.record);
        Ok(self.store.save_slot(&claimed.record)?)
    }

    /// The engine of a slot.
    pub(super) async fn engine_of(
        &self,
        engines: &dyn Engines,
        record: &SlotRecord,
    ) -> Result<Arc<dyn ContainerRuntime>, SlotError> {
        let runtime = engines.for_record(record.volume.engine, &record.volume.endpoint).await?;
        Ok(engines.traced(runtime, record.tag()))
    }
}

/// A call that is in a slot.
#[derive(Debug)]
pub(super) struct SlotUse(pub(super) Arc<Slot>);

impl SlotUse {
    pub(super) fn new(slot: Arc<Slot>) -> Self {
        slot.calls.fetch_add(1, Ordering::Relaxed);
        slot.used();
        Self(slot)
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        self.0.used();
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}
