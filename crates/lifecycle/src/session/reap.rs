//! Slots whose time is over: those that nobody uses lose their container, and old ones all that they have
//! (`workspace.idle`, `workspace.lifetime`).

use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::{ContainerName, ContainerRuntime, ProcessId};

use super::end::Ending;
use super::record::{Loss, PutOff, SlotFile, SlotVolume};
use super::slot_state::ClaimedSlot;
use super::{EndReason, Reason, Recreated, RoomDeed, RoomError, Rooms, Slot, SlotRecord, Tell};
use crate::clock::Moment;
use crate::find::proven;
use crate::reap::in_use;
use crate::slot::RoomRole;
use crate::{Engines, Found, Saved, volume};

/// What runs in a sandbox that nobody uses has so long to end.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// Longer than it takes until a call is written down.
const REST: Duration = Duration::from_secs(120);

/// One that could not be ended is tried again after so long, and after twice as long each time, up to the most.
const AGAIN: Duration = Duration::from_secs(60);
const AGAIN_AT_MOST: Duration = Duration::from_secs(6 * 60 * 60);

/// A slot in which nothing runs, and that nobody else is at.
struct AtRest<'a> {
    slot: ClaimedSlot<'a>,
    runtime: Arc<dyn ContainerRuntime>,
}

impl Rooms {
    /// Removes the containers of slots that nobody has used for long by both clocks, in which nothing runs, and which
    /// nobody is at. Volumes and records stay. Failures are told and fail nobody.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn sweep(&self, engines: &dyn Engines, now: &Moment, tell: &Tell<'_>) -> Result<(), RoomError> {
        for record in self.store.slots()? {
            let room = self.slot(&record.session, record.role);
            if record.container.is_none() || record.lost.is_some() || !self.is_idle(&room, &record, now) {
                continue;
            }
            match Box::pin(self.sweep_one(engines, (&room, &record), now)).await {
                Ok(true) => tell(record.event(RoomDeed::IdleCleanup { idle_seconds: record.idle_seconds(now) })),
                Ok(false) => {}
                Err(err) => {
                    tracing::warn!(session = %record.session, %err, "a slot that nobody uses cannot be removed");
                    tell(record.event(RoomDeed::CleanupFailed { step: "idle", error: err.to_string() }));
                }
            }
        }
        Ok(())
    }

    fn is_idle(&self, room: &Slot, record: &SlotRecord, now: &Moment) -> bool {
        let idle = if record.role == RoomRole::Sandbox { self.terms.sandbox_idle } else { self.terms.idle };
        let past = |used: &Moment| now.is_past(used, idle, idle);
        let here = room.seen().used.clone();
        !room.is_called() && past(&record.used) && here.is_none_or(|it| past(&it))
    }

    async fn sweep_one(
        &self,
        engines: &dyn Engines,
        (room, seen): (&Slot, &SlotRecord),
        now: &Moment,
    ) -> Result<bool, RoomError> {
        let due = |record: &SlotRecord| {
            let same = record.container_id() == seen.container_id();
            !record.ending && record.lost.is_none() && same && self.is_idle(room, record, now)
        };
        let Some(AtRest { mut slot, runtime }) = self.at_rest(engines, room, seen, due).await? else {
            return Ok(false);
        };
        let record = &mut *slot.record;
        record.lost = Some(Loss { reason: Reason::Idle, exit_code: None });
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
    pub async fn expire(&self, engines: &dyn Engines, now: &Moment, ending: &Ending<'_>) -> Result<(), RoomError> {
        // A sandbox is ended by whoever knows what work is in it.
        let of_session = |it: &&SlotRecord| it.role != RoomRole::Sandbox && self.is_due(it, now);
        for seen in self.store.slots()?.iter().filter(of_session) {
            let ended =
                tokio::time::timeout(ending.within, Box::pin(self.expire_one(engines, (seen, now), ending))).await;
            let late = || crate::Error::Busy { name: seen.session.to_string() }.into();
            match ended.unwrap_or_else(|_| Err(late())) {
                Ok(None) => {}
                Ok(Some(saved)) => {
                    saved.iter().for_each(|it| (ending.tell)(seen.saved(it)));
                    (ending.tell)(seen.event(RoomDeed::Ended { reason: EndReason::Lifetime }));
                }
                Err(err) => {
                    tracing::warn!(session = %seen.session, %err, "a slot that is old cannot be removed");
                    self.put_off((&seen.session, seen.role), now)?;
                    (ending.tell)(seen.event(RoomDeed::CleanupFailed { step: "lifetime", error: err.to_string() }));
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
    pub async fn old_sandboxes(&self, engines: &dyn Engines, now: &Moment) -> Result<Vec<ContainerName>, RoomError> {
        let mut old = Vec::new();
        for seen in self.store.slots()?.iter().filter(|it| it.role == RoomRole::Sandbox && self.is_due(it, now)) {
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
        now: &Moment,
    ) -> Result<bool, RoomError> {
        let SlotFile::Record(seen) = self.store.load_slot((session, RoomRole::Sandbox))? else { return Ok(false) };
        self.is_at_rest(engines, &seen, now).await
    }

    async fn is_at_rest(&self, engines: &dyn Engines, seen: &SlotRecord, now: &Moment) -> Result<bool, RoomError> {
        let room = self.slot(&seen.session, seen.role);
        let due = |record: &SlotRecord| self.may_expire(record, now);
        Ok(self.at_rest(engines, &room, seen, due).await?.is_some())
    }

    /// Claims a slot whose time is over, if nothing runs in it and nobody is at it. Whoever calls from here on waits at the
    /// door.
    async fn at_rest<'a>(
        &self,
        engines: &dyn Engines,
        room: &'a Slot,
        seen: &SlotRecord,
        is_due: impl Fn(&SlotRecord) -> bool,
    ) -> Result<Option<AtRest<'a>>, RoomError> {
        let Some(slot) = self.try_claim(room, (&seen.session, seen.role))? else { return Ok(None) };
        if room.is_called() || !is_due(&slot.record) {
            return Ok(None);
        }
        let runtime = self.engine_of(engines, &slot.record).await?;
        // A link that is held may be an exec of the engine, and pass for somebody.
        self.forget(room, slot.record.container_id());
        if room.is_called() {
            return Ok(None);
        }
        if let Some(record) = self.lifecycle_record(&*runtime, &slot.record).await? {
            let container = proven(&*runtime, &record).await?;
            let mut found = Found { runtime: runtime.clone(), record, container };
            if in_use(&self.store, &self.links, &mut found).await {
                return Ok(None);
            }
        }
        Ok(Some(AtRest { slot, runtime }))
    }

    /// A slot whose lifetime is over could not be ended: that is tried again later, and each time later than before.
    ///
    /// # Errors
    /// When that cannot be written down.
    pub fn put_off(&self, key: (&ContainerName, RoomRole), now: &Moment) -> Result<(), RoomError> {
        let room = self.slot(key.0, key.1);
        let Some(mut slot) = self.try_claim(&room, key)? else { return Ok(()) };
        let record = &mut *slot.record;
        let times = record.put_off.as_ref().map_or(0, |it| it.times).saturating_add(1);
        record.put_off = Some(PutOff { times, at: now.clone() });
        Ok(self.store.save_slot(record)?)
    }

    /// It is old, and was not found to be stuck a moment ago.
    fn is_due(&self, record: &SlotRecord, now: &Moment) -> bool {
        self.is_old(record, now) && record.put_off.as_ref().is_none_or(|it| it.is_over(now))
    }

    fn may_expire(&self, record: &SlotRecord, now: &Moment) -> bool {
        self.is_due(record, now) && !self.is_used(record, now)
    }

    fn is_old(&self, record: &SlotRecord, now: &Moment) -> bool {
        let lasts = self.lifetime(record.role);
        let past = |begun: &Moment| now.is_past(begun, lasts, lasts);
        // What was never filled has nothing that could be old.
        record.volume.filled.is_some() && record.volume.begun.as_ref().is_some_and(past)
    }

    fn lifetime(&self, role: RoomRole) -> Duration {
        if role == RoomRole::Sandbox { self.terms.sandbox_lifetime } else { self.terms.lifetime }
    }

    /// What was saved; nothing at all when somebody is in it.
    async fn expire_one(
        &self,
        engines: &dyn Engines,
        (seen, now): (&SlotRecord, &Moment),
        ending: &Ending<'_>,
    ) -> Result<Option<Vec<Saved>>, RoomError> {
        let room = self.slot(&seen.session, seen.role);
        let due = |record: &SlotRecord| !record.ending && self.may_expire(record, now);
        let Some(AtRest { mut slot, runtime }) = self.at_rest(engines, &room, seen, due).await? else {
            return Ok(None);
        };
        let record = &mut *slot.record;
        let saved = self.remove(&*runtime, &room, record, ending).await?;
        volume::remove(&*runtime, &self.store, &record.volume.name).await?;
        self.begin_anew(record.clone())?;
        Ok(Some(saved))
    }

    /// Whether another process may be at it: one that lives, or one that called a moment ago and wrote that down.
    fn is_used(&self, record: &SlotRecord, now: &Moment) -> bool {
        let of_another = |it: &ProcessId| *it != ProcessId::current() && it.alive();
        let rest = REST.min(self.lifetime(record.role));
        record.owner.as_ref().is_some_and(of_another) || !now.is_past(&record.used, rest, rest)
    }

    /// Remembers that there was a room, and what is to be told of that.
    fn begin_anew(&self, mut record: SlotRecord) -> Result<(), RoomError> {
        if record.role == RoomRole::Workspace {
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

impl PutOff {
    /// It may be tried again.
    fn is_over(&self, now: &Moment) -> bool {
        let pause = AGAIN.saturating_mul(1 << self.times.saturating_sub(1).min(16)).min(AGAIN_AT_MOST);
        now.is_past(&self.at, pause, pause)
    }
}

impl SlotRecord {
    /// For how long nobody had used it.
    fn idle_seconds(&self, now: &Moment) -> u64 {
        u64::try_from(now.wall.duration_since(self.used.wall).as_secs()).unwrap_or_default()
    }
}
