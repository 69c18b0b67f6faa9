//! Rooms over time: who is in them, whose they are, and what goes since nobody uses it (workspace.md 1.6, 1.7).

use std::sync::atomic::Ordering;
use std::time::Duration;

use coracle_runtime::{ContainerName, ProcessId};
use tokio::time::Instant;

use super::record::{Loss, SlotFile};
use super::{Reason, Room, RoomDeed, RoomError, Rooms, SlotRecord, Tell, lease_from};
use crate::clock::Moment;
use crate::find::proven;
use crate::reap::in_use;
use crate::slot::RoomRole;
use crate::{Engines, Found};

/// What runs in a sandbox that nobody uses has so long to end.
const STOPS_WITHIN: Duration = Duration::from_secs(10);

/// That a room is used is written down no more often.
const WRITTEN_EVERY: Duration = Duration::from_secs(60);

impl Rooms {
    /// A call in a room begins or ends. It is written down at most once a minute, and not while somebody else is at the
    /// record.
    pub fn touch(&self, session: &ContainerName, role: RoomRole) {
        let room = self.room(session, role);
        room.used();
        let due = {
            let mut seen = room.seen();
            let due = seen.there.is_some() && seen.written.is_none_or(|it| it.elapsed() >= WRITTEN_EVERY);
            if due {
                seen.written = Some(Instant::now());
            }
            due
        };
        if due && let Err(err) = self.note(&room, (session, role), |_| {}) {
            tracing::warn!(%session, %err, "that a room is used cannot be written down");
        }
    }

    /// Renews the leases of the rooms that this process uses, and takes over those of a process that is dead. To be
    /// called several times within the time of a lease.
    ///
    /// # Errors
    /// When a record cannot be written; the others are renewed all the same.
    pub fn renew(&self, owner: &ProcessId) -> Result<(), RoomError> {
        let mut failed = None;
        for ((session, role), room) in self.held() {
            if room.seen().there.is_none() {
                continue;
            }
            let renewed = self.note(&room, (&session, role), |record| {
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

    /// Changes a record, unless somebody else is at it, and says when the room was last used.
    fn note(
        &self,
        room: &Room,
        key: (&ContainerName, RoomRole),
        change: impl FnOnce(&mut SlotRecord),
    ) -> Result<(), RoomError> {
        let Ok(_mine) = room.door.try_lock() else { return Ok(()) };
        let Some(_all) = self.store.try_lock_slot(key)? else { return Ok(()) };
        let SlotFile::Record(mut record) = self.store.load_slot(key)? else { return Ok(()) };
        if record.ending {
            return Ok(());
        }
        change(&mut record);
        if let Some(used) = room.seen().used.clone() {
            record.used = used;
        }
        Ok(self.store.save_slot(&record)?)
    }

    /// Removes the containers of rooms that nobody has used for long by both clocks, in which nothing runs, and which
    /// nobody is at. Volumes and records stay. Failures are told and fail nobody.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn sweep(&self, engines: &dyn Engines, now: &Moment, tell: &Tell<'_>) -> Result<(), RoomError> {
        for record in self.store.slots()? {
            let room = self.room(&record.session, record.role);
            if record.container.is_none() || record.lost.is_some() || !self.is_idle(&room, &record, now) {
                continue;
            }
            match Box::pin(self.sweep_one(engines, (&room, &record), now)).await {
                Ok(true) => tell(record.event(RoomDeed::IdleCleanup { idle_seconds: record.idle_seconds(now) })),
                Ok(false) => {}
                Err(err) => {
                    tracing::warn!(session = %record.session, %err, "a room that nobody uses cannot be removed");
                    tell(record.event(RoomDeed::CleanupFailed { step: "idle", error: err.to_string() }));
                }
            }
        }
        Ok(())
    }

    fn is_idle(&self, room: &Room, record: &SlotRecord, now: &Moment) -> bool {
        let idle = if record.role == RoomRole::Sandbox { self.terms.sandbox_idle } else { self.terms.idle };
        let past = |used: &Moment| now.is_past(used, idle, idle);
        let here = room.seen().used.clone();
        room.calls.load(Ordering::Relaxed) == 0 && past(&record.used) && here.is_none_or(|it| past(&it))
    }

    async fn sweep_one(
        &self,
        engines: &dyn Engines,
        (room, seen): (&Room, &SlotRecord),
        now: &Moment,
    ) -> Result<bool, RoomError> {
        let key = (&seen.session, seen.role);
        let Ok(_mine) = room.door.try_lock() else { return Ok(false) };
        let Some(_all) = self.store.try_lock_slot(key)? else { return Ok(false) };
        let SlotFile::Record(mut record) = self.store.load_slot(key)? else { return Ok(false) };
        if record.ending
            || record.lost.is_some()
            || record.container_id() != seen.container_id()
            || !self.is_idle(room, &record, now)
        {
            return Ok(false);
        }
        let runtime = engines.heard(engines.of(record.volume.engine, &record.volume.endpoint).await?, record.tag());
        // A link that is held may be an exec of the engine, and pass for somebody.
        self.forget(room, record.container_id());
        if let Some(there) = self.lifecycle_record(&*runtime, &record).await? {
            let container = proven(&*runtime, &there).await?;
            let mut found = Found { runtime: runtime.clone(), record: there, container };
            if in_use(&self.store, &self.links, &mut found).await {
                return Ok(false);
            }
        }
        record.lost = Some(Loss { reason: Reason::Idle, exit_code: None });
        match record.container_id() {
            Some(id) if record.role.is_started_again() => {
                runtime.stop(id, STOPS_WITHIN).await?;
                self.store.save_slot(&record)?;
            }
            _ => self.clear_container(&*runtime, &mut record).await?,
        }
        Ok(true)
    }
}

impl SlotRecord {
    /// For how long nobody had used it.
    fn idle_seconds(&self, now: &Moment) -> u64 {
        u64::try_from(now.wall.duration_since(self.used.wall).as_secs()).unwrap_or_default()
    }
}
