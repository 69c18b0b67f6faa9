//! The end of a session, and of those whose process came to its own.

use std::time::Duration;

use coracle_runtime::{Capabilities, ContainerRuntime, CreateSpec, NetworkRequest, Policy};
use coracle_types::{ContainerName, ImageRef};
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use super::create::Parts;
use super::inspect::Liveness;
use super::record::LastContainer;
use super::{
    ContainerTemplate, EndReason, EnsureRequest, SessionContainers, Slot, SlotError, SlotObserver, SlotRecord,
};
use crate::clock::ClockReading;
use crate::slot::{SlotKey, SlotRole};
use crate::store::LoadOutcome;
use crate::{
    Engines, Error, GuestProgram, RemoveOptions, Result, SaveObstacle, SavePolicy, SaveReport, destroy, volume,
};

/// How a session is ended.
#[derive(Clone, Copy)]
pub struct EndOptions<'a> {
    /// What becomes of work in the workspace. Inputs of snippets are copies, and never saved.
    pub saving: SavePolicy,
    /// For the container that work is read from, when there is none: its guest, and what decides whether it may be.
    /// Without one the volume stays.
    pub reader: Option<(&'a GuestProgram, &'a Policy)>,
    /// Between TERM and KILL of what still runs.
    pub grace: Duration,
    /// For all of it. What does not fit is finished by the next [`SessionContainers::recover`].
    pub within: Duration,
    /// Hears of what is done.
    pub observer: &'a SlotObserver<'a>,
    /// Why it ends, for the events.
    pub reason: EndReason,
}

impl std::fmt::Debug for EndOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EndOptions").field("saving", &self.saving).field("within", &self.within).finish_non_exhaustive()
    }
}

/// What an end came to.
#[derive(Debug, Default)]
pub struct EndedSession {
    /// Containers that were removed.
    pub ended: Vec<(ContainerName, SlotRole)>,
    /// What was saved of them.
    pub saved: Vec<SaveReport>,
    /// What stays for the next time, and why.
    pub failed: Vec<(ContainerName, SlotRole, SlotError)>,
}

impl SessionContainers {
    /// Ends a session: from now on it has no slots, and those that it has go with their volumes and records. Work in
    /// the workspace is saved before.
    ///
    /// # Errors
    /// When the records cannot be read. What cannot be removed is in the answer, and stays for
    /// [`recover`](Self::recover).
    pub async fn end(
        &self,
        engines: &dyn Engines,
        session: &ContainerName,
        ending: &EndOptions<'_>,
    ) -> Result<EndedSession, SlotError> {
        self.ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(session.clone());
        let all = self.store.slots()?;
        let its = all.into_iter().filter(|it| it.session == *session).collect();
        let done = self.end_all(engines, its, ending).await;
        if ending.reason == EndReason::Command && !done.failed.is_empty() {
            // The user may copy out what could not be saved, and end it again.
            self.reopen(session);
            for (_, role, _) in &done.failed {
                self.change(SlotKey::new(session, *role), |record| record.ending = false)?;
            }
        }
        Ok(done)
    }

    /// The session may have slots again: another client is bound to its name.
    pub fn reopen(&self, session: &ContainerName) {
        self.ended.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(session);
    }

    /// Ends what an end left over, and every session whose process is dead and whose lease is over. What cannot be
    /// ended is tried again later; what another call holds is left to that one.
    ///
    /// # Errors
    /// As for [`end`](Self::end).
    pub async fn recover(
        &self,
        engines: &dyn Engines,
        now: &ClockReading,
        ending: &EndOptions<'_>,
    ) -> Result<EndedSession, SlotError> {
        let is_due = |it: &SlotRecord| it.is_over(now.wall) && it.may_be_tried(now) && !self.is_claimed(it.key());
        let (mut done, until) = (EndedSession::default(), Instant::now() + ending.within);
        for seen in self.store.slots()?.iter().filter(|it| is_due(it)) {
            if Instant::now() >= until {
                // The others are neither marked nor put off: their turn is the next time.
                break;
            }
            self.end_until(until, engines, seen, ending, &mut done).await;
        }
        for (session, role, _) in &done.failed {
            self.put_off(SlotKey::new(session, *role), now)?;
        }
        Ok(done)
    }

    /// Ends one slot alone.
    pub(crate) async fn end_slot(
        &self,
        engines: &dyn Engines,
        key: SlotKey<'_>,
        ending: &EndOptions<'_>,
    ) -> Result<()> {
        let LoadOutcome::Record(seen) = self.store.load_slot(key)? else { return Ok(()) };
        let mut done = self.end_all(engines, vec![*seen], ending).await;
        match done.failed.pop() {
            Some((.., SlotError::Lifecycle(err))) => Err(err),
            Some((session, ..)) => Err(Error::Busy { name: session.to_string() }),
            None => Ok(()),
        }
    }

    async fn end_all(&self, engines: &dyn Engines, slots: Vec<SlotRecord>, ending: &EndOptions<'_>) -> EndedSession {
        let (mut done, until) = (EndedSession::default(), Instant::now() + ending.within);
        for seen in &slots {
            self.end_until(until, engines, seen, ending, &mut done).await;
        }
        done
    }

    async fn end_until(
        &self,
        until: Instant,
        engines: &dyn Engines,
        seen: &SlotRecord,
        ending: &EndOptions<'_>,
        done: &mut EndedSession,
    ) {
        let ended = timeout_at(until, Box::pin(self.end_one(engines, seen, ending))).await;
        match ended.unwrap_or_else(|_| Err(seen.late())) {
            Ok(saved) => {
                seen.report_end(&saved, ending.observer, ending.reason);
                done.saved.extend(saved);
                done.ended.push((seen.session.clone(), seen.role));
            }
            Err(err) => {
                (ending.observer)(seen.cleanup_failed("end", &err));
                done.failed.push((seen.session.clone(), seen.role, err));
            }
        }
    }

    async fn end_one(
        &self,
        engines: &dyn Engines,
        seen: &SlotRecord,
        ending: &EndOptions<'_>,
    ) -> Result<Vec<SaveReport>, SlotError> {
        let (key, slot) = (seen.key(), self.slot(seen.key()));
        let Some(mut claimed) = self.claim(&slot, key).await? else { return Ok(Vec::new()) };
        let record = &mut *claimed.record;
        record.ending = true;
        self.store.save_slot(record)?;
        let runtime = self.engine_of(engines, record).await?;
        let saved = self.remove(&*runtime, &slot, record, ending).await?;
        self.forget(&slot, seen.container_id());
        volume::remove(&*runtime, &self.store, &record.volume.name).await?;
        self.store.forget_slot(key)?;
        Ok(saved)
    }

    /// Saves work in the volume, then removes the container.
    pub(super) async fn remove(
        &self,
        runtime: &dyn ContainerRuntime,
        slot: &Slot,
        record: &mut SlotRecord,
        ending: &EndOptions<'_>,
    ) -> Result<Vec<SaveReport>, SlotError> {
        let saving = match (record.role, ending.saving) {
            // A volume that was never filled holds no work.
            (SlotRole::Workspace, SavePolicy::Keep(limits)) if record.volume.filled.is_some() => {
                SavePolicy::Keep(limits)
            }
            _ => SavePolicy::Discard,
        };
        let keeps = matches!(saving, SavePolicy::Keep(_));
        match self.inspect(runtime, record).await? {
            // It is not a managed container, and is left alone.
            Liveness::Foreign => return Ok(Vec::new()),
            Liveness::Answers(_) | Liveness::Restarted(_) => {}
            Liveness::Lost(_) if !keeps => {}
            Liveness::Lost(_) => {
                self.forget(slot, record.container_id());
                self.clear_container(runtime, record).await?;
                if !volume::is_there(runtime, &self.store, &record.volume.name).await? {
                    return Ok(Vec::new());
                }
                *record = self.reader(runtime, record.clone(), ending).await?;
            }
        }
        let Some(there) = self.lifecycle_record(runtime, record).await? else { return Ok(Vec::new()) };
        let removing = RemoveOptions { links: &self.links, saving, grace: ending.grace, adopted_too: false };
        Ok(destroy(runtime, &self.store, &there, &removing).await?.saved)
    }

    /// A container that does nothing but give out what is in the volume.
    async fn reader(
        &self,
        runtime: &dyn ContainerRuntime,
        record: SlotRecord,
        ending: &EndOptions<'_>,
    ) -> Result<SlotRecord, SlotError> {
        let unread = |reason: &str| {
            let paths = vec![record.volume.at.to_string()];
            SlotError::from(Error::SaveFailed { paths, reason: reason.to_owned(), obstacle: SaveObstacle::Unreadable })
        };
        let (guest, policy) = ending.reader.ok_or_else(|| unread("there is no container to read them from"))?;
        let unknown = || unread("the image of their container is not known");
        let LastContainer { image: named, image_id, workdir } = record.last_container().ok_or_else(unknown)?;
        let id = image_id.ok_or_else(unknown)?;
        let reference = ImageRef::parse(&named).map_err(|_| unread("the name of their image is not known"))?;
        // A cluster knows an image by its id only while one of its Pods runs it, and its registry knows the name.
        let found = runtime.find_images(&[ImageRef::from(id.clone()), reference.clone()]).await?;
        let image = found.into_iter().find(|it| it.id == id);
        let image = image.ok_or_else(|| unread("the image of their container is gone"))?;
        let name = record.name.clone().unwrap_or_else(|| self.fresh_name(record.role));
        let spec = CreateSpec {
            exec_user: record.volume.user,
            read_only: true,
            network: NetworkRequest::None,
            capabilities: if policy.strict { Capabilities::None } else { Capabilities::Guest },
            ..CreateSpec::new(name, reference)
        };
        let plan = ContainerTemplate {
            spec,
            policy: policy.clone(),
            image,
            reference: named,
            guest: guest.clone(),
            volume_at: record.volume.at.clone(),
            workdir,
            env: record.env.clone(),
            volume_size: None,
            fill: None,
            protected: Vec::new(),
            max_containers_total: usize::MAX,
            tool_version: String::new(),
        };
        let (session, hash) = (record.session.clone(), record.spec_hash.clone());
        let (user, rootless) = (record.volume.user, plan.spec.is_rootless_inside());
        let request = EnsureRequest {
            session: &session,
            role: record.role,
            spec_hash: &hash,
            user,
            rootless,
            owner: None,
            observer: &|_| {},
        };
        Ok(Box::pin(self.container(Parts { runtime, request, plan }, record)).await?.0)
    }
}

impl SlotRecord {
    /// Whether it is to go: its end was begun, or its process ended without the end of its session a while ago.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.ending || self.owner.as_ref().is_some_and(|it| !it.alive()) && self.expires_at <= now
    }
}
