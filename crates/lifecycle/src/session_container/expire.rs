//! Slots whose time is over: those that are not used lose their container, and old ones all that they have
//! (`workspace.idle`, `workspace.lifetime`).

use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::ContainerRuntime;
use coracle_types::{ContainerName, ProcessId};
use tokio::time::{Instant, timeout_at};

use super::end::EndOptions;
use super::record::{ExitCause, SlotVolume};
use super::slot_state::ClaimedSlot;
use super::{
    ContainerEvent, EndReason, Reason, Replacement, SessionContainers, Slot, SlotError, SlotObserver, SlotRecord,
};
use crate::clock::ClockReading;
use crate::deferred::Deferred;
use crate::find::proven;
use crate::reap::in_use;
use crate::slot::{SlotKey, SlotRole};
use crate::store::LoadOutcome;
use crate::{Engines, ManagedContainer, SaveReport, volume};

/// What runs in a sandbox that is not used has so long to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Longer than it takes until a call is written down.
const REST: Duration = Duration::from_secs(120);

/// A slot in which nothing runs, and that no other call is at.
struct AtRest<'a> {
    claimed: ClaimedSlot<'a>,
    runtime: Arc<dyn ContainerRuntime>,
}

impl SessionContainers {
    /// Removes the containers of slots that were not used for long by both clocks, in which nothing runs, and which no
    /// call is at. Volumes and records stay. Failures are reported to `tell`.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn sweep(
        &self,
        engines: &dyn Engines,
        now: &ClockReading,
        observer: &SlotObserver<'_>,
    ) -> Result<(), SlotError> {
        for seen in self.store.slots()? {
            match Box::pin(self.sweep_one(engines, &seen, now)).await {
                Ok(true) => observer(seen.event(ContainerEvent::IdleCleanup { idle_seconds: seen.idle_seconds(now) })),
                Ok(false) => {}
                Err(err) => observer(seen.cleanup_failed("idle", &err)),
            }
        }
        Ok(())
    }

    async fn sweep_one(&self, engines: &dyn Engines, seen: &SlotRecord, now: &ClockReading) -> Result<bool, SlotError> {
        let (slot, idle) = (self.slot(seen.key()), self.terms.idle_of(seen.role));
        let is_idle = |record: &SlotRecord| {
            let there = record.container.is_some() && record.container_id() == seen.container_id();
            let here = slot.seen().used.clone();
            let unused = here.iter().chain([&record.used]).all(|used| now.is_past(used, idle, idle));
            there && !record.ending && record.lost.is_none() && unused
        };
        let Some(AtRest { mut claimed, runtime }) = self.at_rest(engines, &slot, seen, is_idle).await? else {
            return Ok(false);
        };
        let record = &mut *claimed.record;
        record.lost = Some(ExitCause { reason: Reason::Idle, exit_code: None });
        match record.container_id() {
            Some(id) if record.role.is_started_again() => {
                runtime.stop(id, STOP_TIMEOUT).await?;
                self.store.save_slot(record)?;
            }
            _ => self.clear_container(&*runtime, record).await?,
        }
        Ok(true)
    }

    /// Ends the slots of sessions whose lifetime is over by both clocks, in which nothing runs, and which no call is
    /// at. Their work is saved, and container and volume go. The record stays, so that the session's next call gets a
    /// first container again, and its response reports that. Failures are reported to the observer.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn expire(
        &self,
        engines: &dyn Engines,
        now: &ClockReading,
        ending: &EndOptions<'_>,
    ) -> Result<(), SlotError> {
        let until = Instant::now() + ending.within;
        // A sandbox is ended by the crate that knows what work is in it.
        for seen in self.store.slots()?.iter().filter(|it| it.role != SlotRole::Sandbox) {
            if Instant::now() >= until {
                // The others are not put off: their turn is the next time.
                break;
            }
            let ended = timeout_at(until, Box::pin(self.expire_one(engines, seen, now, ending))).await;
            match ended.unwrap_or_else(|_| Err(seen.late())) {
                Ok(None) => {}
                Ok(Some(saved)) => seen.report_end(&saved, ending.observer, EndReason::Lifetime),
                Err(err) => {
                    self.put_off(seen.key(), now)?;
                    (ending.observer)(seen.cleanup_failed("lifetime", &err));
                }
            }
        }
        Ok(())
    }

    /// What was saved; `None` if it is in use.
    async fn expire_one(
        &self,
        engines: &dyn Engines,
        seen: &SlotRecord,
        now: &ClockReading,
        ending: &EndOptions<'_>,
    ) -> Result<Option<Vec<SaveReport>>, SlotError> {
        let slot = self.slot(seen.key());
        let due = |record: &SlotRecord| !record.ending && self.may_expire(record, now);
        let Some(AtRest { mut claimed, runtime }) = self.at_rest(engines, &slot, seen, due).await? else {
            return Ok(None);
        };
        let record = &mut *claimed.record;
        let saved = self.remove(&*runtime, &slot, record, ending).await?;
        volume::remove(&*runtime, &self.store, &record.volume.name).await?;
        self.begin_replacement(record.clone())?;
        Ok(Some(saved))
    }

    /// Sandboxes whose lifetime is over, in which nothing runs, and which no call is at. The caller that ends them
    /// saves what is in them, and calls [`put_off`](Self::put_off) if that cannot be.
    ///
    /// # Errors
    /// When the records cannot be read. One whose use is not known is left out.
    pub async fn old_sandboxes(
        &self,
        engines: &dyn Engines,
        now: &ClockReading,
    ) -> Result<Vec<ContainerName>, SlotError> {
        let mut old = Vec::new();
        for seen in self.store.slots()?.iter().filter(|it| it.role == SlotRole::Sandbox) {
            match self.is_old(engines, seen, now).await {
                Ok(true) => old.push(seen.session.clone()),
                Ok(false) => {}
                Err(err) => tracing::warn!(session = %seen.session, %err, "an old sandbox cannot be looked at"),
            }
        }
        Ok(old)
    }

    /// Whether one of [`old_sandboxes`](Self::old_sandboxes) still is: others were ended since, which takes its time.
    ///
    /// # Errors
    /// When it is not known.
    pub async fn is_old_sandbox(
        &self,
        engines: &dyn Engines,
        session: &ContainerName,
        now: &ClockReading,
    ) -> Result<bool, SlotError> {
        let LoadOutcome::Record(seen) = self.store.load_slot(SlotKey::new(session, SlotRole::Sandbox))? else {
            return Ok(false);
        };
        self.is_old(engines, &seen, now).await
    }

    async fn is_old(&self, engines: &dyn Engines, seen: &SlotRecord, now: &ClockReading) -> Result<bool, SlotError> {
        let slot = self.slot(seen.key());
        Ok(self.at_rest(engines, &slot, seen, |it| self.may_expire(it, now)).await?.is_some())
    }

    /// Claims a slot whose time is over, if nothing runs in it and no call is at it. Calls that come from here on wait
    /// at the door.
    async fn at_rest<'a>(
        &self,
        engines: &dyn Engines,
        slot: &'a Slot,
        seen: &SlotRecord,
        is_due: impl Fn(&SlotRecord) -> bool,
    ) -> Result<Option<AtRest<'a>>, SlotError> {
        // Before the lock, which keeps other processes from noting a use.
        if slot.is_called() || !is_due(seen) {
            return Ok(None);
        }
        let Some(claimed) = self.try_claim(slot, seen.key())? else { return Ok(None) };
        if slot.is_called() || !is_due(&claimed.record) {
            return Ok(None);
        }
        let runtime = self.engine_of(engines, &claimed.record).await?;
        // A link that is held may be an exec of the engine, and pass for a user.
        self.forget(slot, claimed.record.container_id());
        if slot.is_called() {
            return Ok(None);
        }
        if let Some(record) = self.lifecycle_record(&*runtime, &claimed.record).await? {
            let container = proven(&*runtime, &record).await?;
            let mut found = ManagedContainer { runtime: runtime.clone(), record, container };
            if in_use(&self.store, &self.links, &mut found).await {
                return Ok(None);
            }
        }
        Ok(Some(AtRest { claimed, runtime }))
    }

    /// A slot whose lifetime is over could not be ended: that is tried again later, and each time later than before.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn put_off(&self, key: SlotKey<'_>, now: &ClockReading) -> Result<(), SlotError> {
        self.change(key, |record| record.put_off = Some(Deferred::after(record.put_off.as_ref(), now)))
    }

    /// It is old, was not found to be stuck a moment ago, and no other process uses it: none that owns it lives, and
    /// none noted a call a moment ago.
    fn may_expire(&self, record: &SlotRecord, now: &ClockReading) -> bool {
        let lifetime = self.terms.lifetime_of(record.role);
        let past = |begun: &ClockReading| now.is_past(begun, lifetime, lifetime);
        // A volume that was never filled has nothing that could be old.
        let is_old = record.volume.filled.is_some() && record.volume.begun.as_ref().is_some_and(past);
        let of_another = |it: &ProcessId| *it != ProcessId::current() && it.alive();
        let rest = REST.min(lifetime);
        is_old
            && record.may_be_tried(now)
            && !record.owner.as_ref().is_some_and(of_another)
            && now.is_past(&record.used, rest, rest)
    }

    /// Remembers that there was a slot, and what the next response reports of that.
    fn begin_replacement(&self, mut record: SlotRecord) -> Result<(), SlotError> {
        if record.role == SlotRole::Workspace {
            self.store.forget_baseline(&record.session)?;
        }
        let from = record.news.as_ref().map_or(record.generation, |it| it.from);
        record.has_none();
        let name = self.fresh_volume(record.role);
        Ok(self.store.save_slot(&SlotRecord {
            volume: SlotVolume { name, filled: None, begun: None, ..record.volume },
            generation: 1,
            restarts: Vec::new(),
            refused_until: None,
            lost: None,
            news: Some(Replacement { reason: Reason::Lifetime, exit_code: None, from, to: 1, files_lost: true }),
            put_off: None,
            ..record
        })?)
    }
}

impl SlotRecord {
    /// It was not found to be stuck a moment ago.
    pub(super) fn may_be_tried(&self, now: &ClockReading) -> bool {
        self.put_off.as_ref().is_none_or(|it| it.is_over(now))
    }

    /// For how long it was not used.
    fn idle_seconds(&self, now: &ClockReading) -> u64 {
        u64::try_from(now.wall.duration_since(self.used.wall).as_secs()).unwrap_or_default()
    }
}
