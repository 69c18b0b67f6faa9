//! Rooms that were there for as long as they may (`workspace.lifetime`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use coracle_runtime::ProcessId;

use super::end::Ending;
use super::record::RoomFile;
use super::{EndReason, Reason, Recreated, Room, RoomDeed, RoomError, RoomRecord, RoomRole, Rooms};
use crate::find::proven;
use crate::lease::Moment;
use crate::reap::in_use;
use crate::{Engines, Found, Saved};

/// Longer than it takes until a call is written down.
const REST: Duration = Duration::from_secs(120);

impl Rooms {
    /// Ends the rooms of sessions whose lifetime is over by both clocks, in which nothing runs, and which nobody is at.
    /// Their work is saved, and container and volume go. The record stays, so that the session's next call gets a first
    /// container again and is told. Failures are told and fail nobody.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn expire(&self, engines: &dyn Engines, now: &Moment, ending: &Ending<'_>) -> Result<(), RoomError> {
        for seen in self.store.rooms()?.iter().filter(|it| self.is_old(it, now)) {
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
                    tracing::warn!(session = %seen.session, %err, "a room that is old cannot be removed");
                    (ending.tell)(seen.event(RoomDeed::CleanupFailed { step: "lifetime", error: err.to_string() }));
                }
            }
        }
        Ok(())
    }

    fn is_old(&self, record: &RoomRecord, now: &Moment) -> bool {
        let lasts = self.terms.lifetime;
        let past = |begun: &Moment| now.is_past(begun, lasts, lasts);
        // A sandbox is told when to end, and what was never filled has nothing that could be old.
        record.role != RoomRole::Sandbox && record.filled.is_some() && record.begun.as_ref().is_some_and(past)
    }

    /// What was saved; nothing at all when somebody is in it.
    async fn expire_one(
        &self,
        engines: &dyn Engines,
        (seen, now): (&RoomRecord, &Moment),
        ending: &Ending<'_>,
    ) -> Result<Option<Vec<Saved>>, RoomError> {
        let (key, room) = ((&seen.session, seen.role), self.room(&seen.session, seen.role));
        let Ok(_mine) = room.door.try_lock() else { return Ok(None) };
        let Some(_all) = self.store.try_lock_room(key)? else { return Ok(None) };
        let RoomFile::Record(mut record) = self.store.load_room(key)? else { return Ok(None) };
        if record.ending || !self.is_old(&record, now) || is_called(&room) || is_used(&record, now) {
            return Ok(None);
        }
        let runtime = engines.heard(engines.of(record.engine, &record.endpoint).await?, record.tag());
        // A link that is held may be an exec of the engine, and pass for somebody.
        self.forget(&room, record.container_id.as_ref());
        // Whoever calls from here on waits at the door.
        if is_called(&room) {
            return Ok(None);
        }
        if record.container_id.is_some()
            && let Some(there) = self.lifecycle_record(&*runtime, &record).await?
        {
            let container = proven(&*runtime, &there).await?;
            let mut found = Found { runtime: runtime.clone(), record: there, container };
            if in_use(&self.store, &self.links, &mut found).await {
                return Ok(None);
            }
        }
        let saved = self.remove(&*runtime, &room, &mut record, ending).await?;
        self.remove_volume(&*runtime, &record).await?;
        self.begin_anew(*record)?;
        Ok(Some(saved))
    }

    /// Remembers that there was a room, and what is to be told of that.
    fn begin_anew(&self, record: RoomRecord) -> Result<(), RoomError> {
        if record.role == RoomRole::Workspace {
            self.store.forget_baseline(&record.session)?;
        }
        let from = record.news.as_ref().map_or(record.generation, |it| it.from);
        let news = Recreated { reason: Reason::Lifetime, exit_code: None, from, to: 1, files_lost: true };
        self.store.save_room(&RoomRecord {
            container_id: None,
            name: None,
            volume: self.fresh_volume(record.role),
            filled: None,
            begun: None,
            generation: 1,
            restarts: Vec::new(),
            refused_until: None,
            lost: None,
            news: Some(news),
            ..record
        })?;
        Ok(())
    }
}

/// Whether another process may be at it: one that lives, or one that called a moment ago and wrote that down.
fn is_used(record: &RoomRecord, now: &Moment) -> bool {
    let of_another = |it: &ProcessId| *it != ProcessId::current() && it.alive();
    record.owner.as_ref().is_some_and(of_another) || !now.is_past(&record.used, REST, REST)
}

fn is_called(room: &Room) -> bool {
    room.calls.load(Ordering::Relaxed) > 0
}
