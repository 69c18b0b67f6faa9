//! Who uses a slot, and whose it is.

use std::time::Duration;

use coracle_types::{ContainerName, ProcessId};
use tokio::time::Instant;

use super::{SessionContainers, Slot, SlotError, SlotRecord, lease_from};
use crate::slot::{SlotKey, SlotRole};

/// That a slot is used is written down no more often.
const WRITTEN_EVERY: Duration = Duration::from_secs(60);

impl SessionContainers {
    /// Records that a call in a slot begins or ends: at most once a minute, and not while another call holds the record.
    pub fn touch(&self, session: &ContainerName, role: SlotRole) {
        let key = SlotKey::new(session, role);
        let slot = self.slot(key);
        slot.used();
        let due = {
            let mut seen = slot.seen();
            let due = seen.there.is_some() && seen.written.is_none_or(|it| it.elapsed() >= WRITTEN_EVERY);
            if due {
                seen.written = Some(Instant::now());
            }
            due
        };
        if due && let Err(err) = self.note(&slot, key, |_| {}) {
            tracing::warn!(%session, %err, "that a slot is used cannot be written down");
        }
    }

    /// Renews the leases of the slots that this process uses, and takes over those of a process that is dead. To be
    /// called several times within the time of a lease.
    ///
    /// # Errors
    /// When a record cannot be written; the others are renewed all the same.
    pub fn renew(&self, owner: &ProcessId) -> Result<(), SlotError> {
        let mut failed = None;
        for ((session, role), slot) in self.held() {
            if slot.seen().there.is_none() {
                continue;
            }
            let renewed = self.note(&slot, SlotKey::new(&session, role), |record| {
                if !record.owner.as_ref().is_some_and(ProcessId::alive) {
                    record.owner = Some(owner.clone());
                }
                if record.owner.as_ref() == Some(owner) {
                    record.expires_at = lease_from(jiff::Timestamp::now(), self.terms.lease);
                }
            });
            failed = renewed.err().or(failed);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Changes a record, unless another call holds it, and records when the slot was last used.
    fn note(&self, slot: &Slot, key: SlotKey<'_>, change: impl FnOnce(&mut SlotRecord)) -> Result<(), SlotError> {
        let Some(mut claimed) = self.try_claim(slot, key)? else { return Ok(()) };
        let record = &mut *claimed.record;
        if record.ending {
            return Ok(());
        }
        change(record);
        if let Some(used) = slot.seen().used.clone() {
            record.used = used;
        }
        Ok(self.store.save_slot(record)?)
    }
}
