//! The slots of all sessions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coracle_types::{ContainerId, ContainerName, VolumeName};
use jiff::Timestamp;

use super::error::SlotError;
use super::limits::SlotLimits;
use super::record::{SlotInfo, SlotRecord};
use super::slot_state::Slot;
use crate::slot::{SlotKey, SlotRole};
use crate::{Links, Store};

/// Which slot.
pub(super) type Key = (ContainerName, SlotRole);

/// The slots of all sessions, as far as this process uses them. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct SessionContainers {
    pub(super) store: Store,
    pub(super) links: Links,
    pub(super) terms: SlotLimits,
    pub(super) held: Arc<Mutex<BTreeMap<Key, Arc<Slot>>>>,
    pub(super) ended: Arc<Mutex<BTreeSet<ContainerName>>>,
}

impl SessionContainers {
    /// None yet.
    #[must_use]
    pub fn new(store: Store, links: Links, terms: SlotLimits) -> Self {
        Self { store, links, terms, held: Arc::default(), ended: Arc::default() }
    }

    /// What is remembered of all slots of all sessions.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn all(&self) -> Result<Vec<SlotInfo>, SlotError> {
        Ok(self.store.slots()?.iter().map(SlotRecord::view).collect())
    }

    pub(super) fn slot(&self, key: SlotKey<'_>) -> Arc<Slot> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.entry((key.session.clone(), key.role)).or_default().clone()
    }

    pub(super) fn held(&self) -> Vec<(Key, Arc<Slot>)> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(|(key, slot)| (key.clone(), slot.clone())).collect()
    }

    pub(super) fn forget(&self, slot: &Slot, id: Option<&ContainerId>) {
        slot.seen().there = None;
        if let Some(id) = id {
            self.links.forget(id);
        }
    }

    pub(super) fn has_ended(&self, session: &ContainerName) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains(session)
    }

    pub(super) fn fresh_name(&self, role: SlotRole) -> ContainerName {
        let namespace = self.store.signer().namespace();
        let name = format!("{namespace}-{}-{}", role.short(), coracle_types::random_hex::<8>());
        ContainerName::parse(name).expect("a namespace and hex digits are a name")
    }

    pub(super) fn fresh_volume(&self, role: SlotRole) -> VolumeName {
        VolumeName::parse(self.fresh_name(role).as_str()).expect("both have one grammar")
    }
}

pub(super) fn millis(it: Duration) -> u64 {
    u64::try_from(it.as_millis()).unwrap_or(u64::MAX)
}

/// When a lease that is renewed now is over.
pub(super) fn lease_from(now: Timestamp, lease: Duration) -> Timestamp {
    let lasts = jiff::SignedDuration::try_from(lease).unwrap_or(jiff::SignedDuration::MAX);
    now.checked_add(lasts).unwrap_or(Timestamp::MAX)
}
