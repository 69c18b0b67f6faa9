//! Slots whose time is over: those that nobody uses lose their container, and old ones all that they have
//! (`workspace.idle`, `workspace.lifetime`).

use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::{ContainerName, ContainerRuntime, ProcessId};

use super::end::EndOptions;
use super::record::{Deferred, ExitCause, SlotFile, SlotVolume};
use super::slot_state::ClaimedSlot;
use super::{
    ContainerEvent, EndReason, Reason, Recreated, SessionContainers, Slot, SlotError, SlotObserver, SlotRecord,
};
use crate::clock::ClockReading;
use crate::find::proven;
use crate::reap::in_use;
use crate::slot::SlotRole;
use crate::{Engines, ManagedContainer, Saved, volume};

/// What runs in a sandbox that nobody uses has so long to end.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// Longer than it takes until a call is written down.
const REST: Duration = Duration::from_secs(120);

/// One that could not be ended is tried again after so long, and after twice as long each time, up to the most.
const AGAIN: Duration = Duration::from_secs(60);
const AGAIN_AT_MOST: Duration = Duration::from_secs(6 * 60 * 60);

/// A slot in which nothing runs, and that nobody else is at.
struct AtRest<'a> {
    claimed: ClaimedSlot<'a>,
    runtime: Arc<dyn ContainerRuntime>,
}

impl SessionContainers {
    /// Removes the containers of slots that nobody has used for long by both clocks, in which nothing runs, and which
    /// nobody is at. Volumes and records stay. Failures are told and fail nobody.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn sweep(
        &self,
        engines: &dyn Engines,
        now: &ClockReading,
        tell: &SlotObserver<'_>,
    ) -> Result<(), SlotError> {
        for record in self.store.slots()? {
            let slot = self.slot(&record.session, record.role);
            if record.container.is_none() || record.lost.is_some() || !self.is_idle(&slot, &record, now) {
                continue;
            }
            match Box::pin(self.sweep_one(engines, (&slot, &record), now)).await {
                Ok(true) => tell(record.event(ContainerEvent::IdleCleanup { idle_seconds: record.idle_seconds(now) })),
                Ok(false) => {}
                Err(err) => {
                    tracing::warn!(session = %record.session, %err, "a slot that nobody uses cannot be removed");
                    tell(record.event(ContainerEvent::CleanupFailed { step: "idle", error: err.to_string() }));
                }
            }
        }
        Ok(())
    }

    fn is_idle(&self, slot: &Slot, record: &SlotRecord, now: &ClockReading) -> bool {
        let idle = if record.role == SlotRole::Sandbox { self.terms.sandbox_idle } else { self.terms.idle };
        let past = |used: &ClockReading| now.is_past(used, idle, idle);
        let here = slot.seen().used.clone();
        !slot.is_called() && past(&record.used) && here.is_none_or(|it| past(&it))
    }

    async fn sweep_one(
        &self,
        engines: &dyn Engines,
        (slot, seen): (&Slot, &SlotRecord),
        now: &ClockReading,
    ) -> Result<bool, SlotError> {
        let due = |record: &SlotRecord| {
            let same = record.container_id() == seen.container_id();
            !record.ending && record.lost.is_none() && same && self.is_idle(slot, record, now)
        };
        let Some(AtRest { mut claimed, runtime }) = self.at_rest(engines, slot, seen, due).await? else {
            return Ok(false);
        };
        let record = &mut *claimed.record;
        record.lost = Some(ExitCause { reason: Reason::Idle, exit_code: None });
        match record.container_id() {
            Some(id) if record.role.is_started_again() => {
                runtime.stop(id, STOPS_WITHIN).await?;
                self.store.save_slot(record)?;
            }
            _ => self.clear_container(&*runtime, record).await?,
        }
        Ok(true)
    }

    /// Ends the slots of sessions whose lifetime is over by both clocks, in which nothing runs, and which nobody is at.
    /// Their work is saved, and container and volume go. The record stays, so that the session's next call gets a first
    /// container again and is told. Failures are told and fail nobody.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn expire(
        &self,
        engines: &dyn Engines,
        now: &ClockReading,
        ending: &EndOptions<'_>,
    ) -> Result<(), SlotError> {
        // A sandbox is ended by whoever knows what work is in it.
        let of_session = |it: &&SlotRecord| it.role != SlotRole::Sandbox && self.is_due(it, now);
        for seen in self.store.slots()?.iter().filter(of_session) {
            let ended =
                tokio::time::timeout(ending.within, Box::pin(self.expire_one(engines, (seen, now), ending))).await;
            let late = || crate::Error::Busy { name: seen.session.to_string() }.into();
            match ended.unwrap_or_else(|_| Err(late())) {
                Ok(None) => {}
                Ok(Some(saved)) => {
                    saved.iter().for_each(|it| (ending.tell)(seen.saved(it)));
                    (ending.tell)(seen.event(ContainerEvent::Ended { reason: EndReason::Lifetime }));
                }
                Err(err) => {
                    tracing::warn!(session = %seen.session, %err, "a slot that is old cannot be removed");
                    self.put_off((&seen.session, seen.role), now)?;
                    (ending.tell)(
                        seen.event(ContainerEvent::CleanupFailed { step: "lifetime", error: err.to_string() }),
                    );
                }
            }
        }
        Ok(())
    }

    /// Sandboxes whose lifetime is over, in which nothing runs, and which nobody is at. Who ends them saves what is in
    /// them, and says so with [`put_off`](Self::put_off) if that cannot be.
    ///
    /// # Errors
    /// When the records cannot be read. One of which it cannot be told whether it is used is left out.
    pub async fn old_sandboxes(
        &self,
        engines: &dyn Engines,
        now: &ClockReading,
    ) -> Result<Vec<ContainerName>, SlotError> {
        let mut old = Vec::new();
        for seen in self.store.slots()?.iter().filter(|it| it.role == SlotRole::Sandbox && self.is_due(it, now)) {
            match self.is_at_rest(engines, seen, now).await {
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
    /// When it cannot be told.
    pub async fn is_old_sandbox(
        &self,
        engines: &dyn Engines,
        session: &ContainerName,
        now: &ClockReading,
    ) -> Result<bool, SlotError> {
        let SlotFile::Record(seen) = self.store.load_slot((session, SlotRole::Sandbox))? else { return Ok(false) };
        self.is_at_rest(engines, &seen, now).await
    }

    async fn is_at_rest(
        &self,
        engines: &dyn Engines,
        seen: &SlotRecord,
        now: &ClockReading,
    ) -> Result<bool, SlotError> {
        let slot = self.slot(&seen.session, seen.role);
        let due = |record: &SlotRecord| self.may_expire(record, now);
        Ok(self.at_rest(engines, &slot, seen, due).await?.is_some())
    }

    /// Claims a slot whose time is over, if nothing runs in it and nobody is at it. Whoever calls from here on waits at the
    /// door.
    async fn at_rest<'a>(
        &self,
        engines: &dyn Engines,
        slot: &'a Slot,
        seen: &SlotRecord,
        is_due: impl Fn(&SlotRecord) -> bool,
    ) -> Result<Option<AtRest<'a>>, SlotError> {
        let Some(claimed) = self.try_claim(slot, (&seen.session, seen.role))? else { return Ok(None) };
        if slot.is_called() || !is_due(&claimed.record) {
            return Ok(None);
        }
        let runtime = self.engine_of(engines, &claimed.record).await?;
        // A link that is held may be an exec of the engine, and pass for somebody.
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
    pub fn put_off(&self, key: (&ContainerName, SlotRole), now: &ClockReading) -> Result<(), SlotError> {
        let slot = self.slot(key.0, key.1);
        let Some(mut claimed) = self.try_claim(&slot, key)? else { return Ok(()) };
        let record = &mut *claimed.record;
        let times = record.put_off.as_ref().map_or(0, |it| it.times).saturating_add(1);
        record.put_off = Some(Deferred { times, at: now.clone() });
        Ok(self.store.save_slot(record)?)
    }

    /// It is old, and was not found to be stuck a moment ago.
    fn is_due(&self, record: &SlotRecord, now: &ClockReading) -> bool {
        self.is_old(record, now) && record.put_off.as_ref().is_none_or(|it| it.is_over(now))
    }

    fn may_expire(&self, record: &SlotRecord, now: &ClockReading) -> bool {
        self.is_due(record, now) && !self.is_used(record, now)
    }

    fn is_old(&self, record: &SlotRecord, now: &ClockReading) -> bool {
        let lasts = self.lifetime(record.role);
        let past = |begun: &ClockReading| now.is_past(begun, lasts, lasts);
        // What was never filled has nothing that could be old.
        record.volume.filled.is_some() && record.volume.begun.as_ref().is_some_and(past)
    }

    fn lifetime(&self, role: SlotRole) -> Duration {
        if role == SlotRole::Sandbox { self.terms.sandbox_lifetime } else { self.terms.lifetime }
    }

    /// What was saved; nothing at all when somebody is in it.
    async fn expire_one(
        &self,
        engines: &dyn Engines,
        (seen, now): (&SlotRecord, &ClockReading),
        ending: &EndOptions<'_>,
    ) -> Result<Option<Vec<Saved>>, SlotError> {
        let slot = self.slot(&seen.session, seen.role);
        let due = |record: &SlotRecord| !record.ending && self.may_expire(record, now);
        let Some(AtRest { mut claimed, runtime }) = self.at_rest(engines, &slot, seen, due).await? else {
            return Ok(None);
        };
        let record = &mut *claimed.record;
        let saved = self.remove(&*runtime, &slot, record, ending).await?;
        volume::remove(&*runtime, &self.store, &record.volume.name).await?;
        self.begin_anew(record.clone())?;
        Ok(Some(saved))
    }

    /// Whether another process may be at it: one that lives, or one that called a moment ago and wrote that down.
    fn is_used(&self, record: &SlotRecord, now: &ClockReading) -> bool {
        let of_another = |it: &ProcessId| *it != ProcessId::current() && it.alive();
        let rest = REST.min(self.lifetime(record.role));
        record.owner.as_ref().is_some_and(of_another) || !now.is_past(&record.used, rest, rest)
    }

    /// Remembers that there was a slot, and what is to be told of that.
    fn begin_anew(&self, mut record: SlotRecord) -> Result<(), SlotError> {
        if record.role == SlotRole::Workspace {
            self.store.forget_baseline(&record.session)?;
        }
        let from = record.news.as_ref().map_or(record.generation, |it| it.from);
        let news = Recreated { reason: Reason::Lifetime, exit_code: None, from, to: 1, files_lost: true };
        record.has_none();
        let name = self.fresh_volume(record.role);
        self.store.save_slot(&SlotRecord {
            volume: SlotVolume { name, filled: None, begun: None, ..record.volume },
            generation: 1,
            restarts: Vec::new(),
            refused_until: None,
            lost: None,
            news: Some(news),
            put_off: None,
            ..record
        })?;
        Ok(())
    }
}

impl Deferred {
    /// It may be tried again.
    fn is_over(&self, now: &ClockReading) -> bool {
        let pause = AGAIN.saturating_mul(1 << self.times.saturating_sub(1).min(16)).min(AGAIN_AT_MOST);
        now.is_past(&self.at, pause, pause)
    }
}

impl SlotRecord {
    /// For how long nobody had used it.
    fn idle_seconds(&self, now: &ClockReading) -> u64 {
        u64::try_from(now.wall.duration_since(self.used.wall).as_secs()).unwrap_or_default()
    }
}
