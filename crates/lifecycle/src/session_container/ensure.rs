//! Returns a usable container for a slot: the existing one, or a new one.

use std::pin::Pin;
use std::sync::Arc;

use coracle_runtime::ContainerRuntime;
use coracle_types::{ContainerId, ContainerName, Handle};
use jiff::{SignedDuration, Timestamp};
use tokio::time::timeout;

use super::adopt::is_itself;
use super::inspect::{Liveness, is_of, record_of};
use super::record::{ExitCause, SlotVolume};
use super::{
    BoxError, ContainerTemplate, EnsureRequest, LiveContainer, PATIENCE, Ready, Reason, Replacement, SessionContainers,
    Slot, SlotError, SlotObserver, SlotRecord, SlotUse, lease_from,
};
use crate::clock::ClockReading;
use crate::guest::answers;
use crate::slot::{SlotId, SlotKey};
use crate::store::LoadOutcome;
use crate::{Engines, Error, RemoveOptions, ResourceKind, SavePolicy, destroy, volume};

/// The period in which failures are counted.
const COUNTED: SignedDuration = SignedDuration::from_mins(10);

/// With this many failures in that period, the container counts as one that crashes in a loop.
const MOST_RESTARTS: usize = 3;

/// No container is created for this long after that.
const REFUSED_FOR: SignedDuration = SignedDuration::from_secs(60);

/// Describes the container of a slot for an engine.
type TemplateSource<'a> = Box<dyn FnOnce(Arc<dyn ContainerRuntime>) -> TemplateFuture<'a> + Send + 'a>;
type TemplateFuture<'a> = Pin<Box<dyn Future<Output = Result<ContainerTemplate, BoxError>> + Send + 'a>>;

impl SessionContainers {
    /// Returns the requested slot, and creates or replaces its container if needed. `plan` describes the container. It
    /// is only called if one is created, with the engine to create it on.
    ///
    /// Creation takes many steps, which are undone if one fails. If the future is dropped in between, the next call for
    /// the slot undoes them, so run this in a task of its own.
    ///
    /// # Errors
    /// [`SlotError`]. [`Error::NotManaged`] if the container that the record names is not Coracle's; it is not changed.
    /// [`Error::Busy`] if another call held the slot for 120 s.
    pub async fn ensure<F, P>(
        &self,
        engines: &dyn Engines,
        request: EnsureRequest<'_>,
        plan: F,
    ) -> Result<Ready, SlotError>
    where
        F: FnOnce(Arc<dyn ContainerRuntime>) -> P + Send,
        P: Future<Output = Result<ContainerTemplate, BoxError>> + Send,
    {
        let slot = self.slot(request.key());
        if let Some(ready) = self.responding(&slot, &request).await? {
            return Ok(ready);
        }
        // Boxed: the rest is rarely needed, and its future is large.
        let template: TemplateSource<'_> = Box::new(move |runtime| Box::pin(plan(runtime)));
        Box::pin(self.ensure_locked(engines, slot, request, template)).await
    }

    async fn ensure_locked(
        &self,
        engines: &dyn Engines,
        slot: Arc<Slot>,
        request: EnsureRequest<'_>,
        plan: TemplateSource<'_>,
    ) -> Result<Ready, SlotError> {
        let busy = |_| Error::Busy { name: request.session.to_string() };
        let _mine = timeout(PATIENCE, slot.door.lock()).await.map_err(busy)?;
        // The call that held the lock may have created it.
        if let Some(ready) = self.responding(&slot, &request).await? {
            return Ok(ready);
        }
        let _all = self.store.lock_slot(request.key()).await?;
        Box::pin(self.under_lock(engines, &slot, request, plan)).await
    }

    /// Returns the last known container if it still responds and matches the request. Records its use once a minute.
    async fn responding(&self, slot: &Arc<Slot>, request: &EnsureRequest<'_>) -> Result<Option<Ready>, SlotError> {
        if self.has_ended(request.session) {
            return Err(SlotError::Ended(request.session.clone()));
        }
        let Some(there) = slot.seen().there.clone() else { return Ok(None) };
        if there.spec_hash != request.spec_hash && (!slot.is_called() || there.view.rootless != request.rootless) {
            return Ok(None);
        }
        let using = SlotUse::new(slot.clone());
        if !answers(&there.link).await {
            return Ok(None);
        }
        self.touch(request.session, request.role);
        let view = super::SlotInfo { last_used_at: Timestamp::now(), ..there.view };
        let spec_pending = there.spec_hash != request.spec_hash;
        Ok(Some(Ready { link: there.link, slot: view, replacement: None, made: false, spec_pending, _using: using }))
    }

    async fn under_lock(
        &self,
        engines: &dyn Engines,
        slot: &Arc<Slot>,
        request: EnsureRequest<'_>,
        plan: TemplateSource<'_>,
    ) -> Result<Ready, SlotError> {
        let key = request.key();
        let record = match self.store.load_slot(key)? {
            LoadOutcome::Record(record) => Some(*record),
            LoadOutcome::Damaged => self.adopt(engines, key, true).await?,
            // Several processes use a sandbox, and another one may have moved its damaged record away.
            LoadOutcome::Missing => self.adopt(engines, key, request.role.is_started_again()).await?,
        };
        let Some(mut record) = record else {
            self.sweep_others(engines, request.observer).await;
            let runtime = engines.preferred().await?;
            let plan = plan(runtime.clone()).await.map_err(SlotError::Plan)?;
            let tag = SlotId { session: request.session, role: request.role, generation: 1 };
            let runtime = engines.traced(runtime, tag);
            return Box::pin(self.first(&runtime, slot, request, plan)).await;
        };
        if record.ending {
            return Err(SlotError::Ended(record.session));
        }
        let plain = engines.for_record(record.volume.engine, &record.volume.endpoint).await?;
        let runtime = engines.traced(plain.clone(), record.tag());
        match self.inspect(&*runtime, &mut record).await? {
            Liveness::Foreign if record.role.is_started_again() => {
                self.skip_foreign(&*runtime, slot, &mut record).await?;
            }
            Liveness::Foreign => {
                let name = record.name.as_ref().map_or_else(String::new, ContainerName::to_string);
                return Err(Error::NotManaged { kind: ResourceKind::Container, name }.into());
            }
            Liveness::Answers(link) => {
                // If a container without root is requested, one with root is replaced even while it is in use.
                let alike = record.is_rootless() == request.rootless;
                if record.spec_hash == request.spec_hash || alike && self.is_in_use(slot, &link).await {
                    record.lost = None;
                    return self.finish(slot, request, (record, link), false);
                }
                record.lost = Some(ExitCause { reason: Reason::SpecChanged, exit_code: None });
            }
            Liveness::Restarted(link) if record.spec_hash == request.spec_hash => {
                record.lost.get_or_insert(ExitCause { reason: Reason::Restarted, exit_code: None });
                record.replaced(false);
                record.started_at = Timestamp::now();
                return self.finish(slot, request, (record, link), false);
            }
            Liveness::Restarted(_) => record.lost = Some(ExitCause { reason: Reason::SpecChanged, exit_code: None }),
            Liveness::Lost(loss) => record.lost = Some(loss),
        }
        self.same_owner(&*runtime, &record, &request).await?;
        self.forget(slot, record.container_id());
        self.clear_container(&*runtime, &mut record).await?;
        self.refuse_loop(&mut record)?;
        self.sweep_others(engines, request.observer).await;
        let plan = plan(plain.clone()).await.map_err(SlotError::Plan)?;
        let next = record.generation.saturating_add(u32::from(record.volume.filled.is_some()));
        let runtime = engines.traced(plain, SlotId { generation: next, ..record.tag() });
        Box::pin(self.replace(&runtime, slot, request, (record, plan))).await
    }

    /// Checks, before anything is removed, that the volume's files belong to the requested user. Another user could not
    /// write to them, and Coracle does not change their owner.
    async fn same_owner(
        &self,
        runtime: &dyn ContainerRuntime,
        record: &SlotRecord,
        request: &EnsureRequest<'_>,
    ) -> Result<(), SlotError> {
        let SlotVolume { name, user: before, filled, .. } = &record.volume;
        if *before == request.user || filled.is_none() {
            return Ok(());
        }
        match volume::is_there(runtime, &self.store, name).await? {
            true => Err(SlotError::OtherUser { session: record.session.clone(), before: *before, now: request.user }),
            false => Ok(()),
        }
    }

    /// Detaches the slot from a container that is not Coracle's, although the record names it.
    async fn skip_foreign(
        &self,
        runtime: &dyn ContainerRuntime,
        slot: &Slot,
        record: &mut SlotRecord,
    ) -> Result<(), SlotError> {
        tracing::warn!(session = %record.session, "the container of a sandbox is not managed by Coracle, and is not touched");
        self.forget(slot, record.container_id());
        record.has_none();
        record.lost = Some(ExitCause { reason: Reason::Vanished, exit_code: None });
        if !volume::is_there(runtime, &self.store, &record.volume.name).await? {
            // A volume that appears under that name later may belong to another program, too.
            record.volume.name = self.fresh_volume(record.role);
        }
        Ok(())
    }

    /// Removes unused containers to make room for a new one.
    async fn sweep_others(&self, engines: &dyn Engines, observer: &SlotObserver<'_>) {
        if let Err(err) = Box::pin(self.sweep(engines, &ClockReading::now(), observer)).await {
            tracing::warn!(%err, "unused containers of sessions cannot be looked for");
        }
    }

    async fn is_in_use(&self, slot: &Slot, link: &coracle_client::Link) -> bool {
        let jobs = async { link.jobs().await.is_ok_and(|it| it.iter().any(|it| it.ended_ms.is_none())) };
        slot.is_called() || jobs.await
    }

    /// Returns the slot, with the replacement that was not reported yet. If the owning process has ended, the caller's
    /// process becomes the owner.
    pub(super) fn finish(
        &self,
        slot: &Arc<Slot>,
        request: EnsureRequest<'_>,
        (mut record, link): (SlotRecord, coracle_client::Link),
        made: bool,
    ) -> Result<Ready, SlotError> {
        let replacement = record.news.take();
        if !record.owner.as_ref().is_some_and(coracle_types::ProcessId::alive) {
            record.owner = request.owner.cloned();
        }
        record.used = ClockReading::now();
        record.expires_at = lease_from(record.used.wall, self.terms.lease);
        self.store.save_slot(&record)?;
        let view = record.view();
        let spec_pending = record.spec_hash != request.spec_hash;
        let mut seen = slot.seen();
        seen.written = Some(tokio::time::Instant::now());
        seen.there = Some(LiveContainer { link: link.clone(), view: view.clone(), spec_hash: record.spec_hash });
        drop(seen);
        Ok(Ready { link, slot: view, replacement, made, spec_pending, _using: SlotUse::new(slot.clone()) })
    }

    /// Removes the container of a record, even one that was still being created, and records that the slot has none.
    pub(super) async fn clear_container(
        &self,
        runtime: &dyn ContainerRuntime,
        record: &mut SlotRecord,
    ) -> Result<(), SlotError> {
        // Saved first, so that it is not lost if this process is killed between the removal and the next write.
        record.last = record.last_container();
        self.store.save_slot(record)?;
        if let Some(there) = self.lifecycle_record(runtime, record).await? {
            let grace = std::time::Duration::from_secs(2);
            let removing = RemoveOptions { links: &self.links, saving: SavePolicy::Discard, grace, adopted_too: false };
            destroy(runtime, &self.store, &there, &removing).await?;
        }
        record.has_none();
        self.store.save_slot(record)?;
        Ok(())
    }

    /// Returns the lifecycle record of a slot's container, if the container exists or was being created.
    pub(super) async fn lifecycle_record(
        &self,
        runtime: &dyn ContainerRuntime,
        slot: &SlotRecord,
    ) -> crate::Result<Option<crate::Record>> {
        let Some(name) = &slot.name else { return Ok(None) };
        if let LoadOutcome::Record(record) = self.store.load(name)? {
            return Ok(Some(Arc::unwrap_or_clone(record)));
        }
        match runtime.inspect(&Handle::Name(name.clone())).await {
            Ok(container) if is_of(&self.store, runtime, slot, &container) && is_itself(slot, &container) => {
                Ok(record_of(&self.store, runtime, &container))
            }
            Ok(_) | Err(coracle_types::Error::NoSuchContainer(_)) => Ok(None),
            Err(err) => Err(err.into()),
        }
    }

    /// Refuses to create containers for a while after repeated failures.
    fn refuse_loop(&self, record: &mut SlotRecord) -> Result<(), SlotError> {
        let Some(ExitCause { reason, .. }) = record.lost.filter(|it| it.reason.is_failure()) else { return Ok(()) };
        let now = Timestamp::now();
        record.restarts.retain(|it| now.duration_since(*it) < COUNTED);
        if record.restarts.len() < MOST_RESTARTS {
            return Ok(());
        }
        let until = match record.refused_until {
            // Limits the wait if the clock was set back.
            Some(until) => until.min(now + REFUSED_FOR),
            None => now + REFUSED_FOR,
        };
        if until <= now {
            record.refused_until = None;
            return Ok(());
        }
        record.refused_until = Some(until);
        self.store.save_slot(record)?;
        let retry_after = until.duration_since(now).try_into().unwrap_or_default();
        Err(SlotError::CrashLoop { reason, retry_after })
    }

    /// Removes the container of a slot. Its volume stays, and the next call gets a new container.
    /// If `container` is set, only that container is removed, not one that has replaced it.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub async fn discard(
        &self,
        engines: &dyn Engines,
        key: SlotKey<'_>,
        reason: Reason,
        container: Option<&ContainerId>,
    ) -> Result<(), SlotError> {
        let slot = self.slot(key);
        let Some(mut claimed) = self.claim(&slot, key).await? else { return Ok(()) };
        let record = &mut *claimed.record;
        if container.is_some_and(|it| record.container_id() != Some(it)) {
            return Ok(());
        }
        let runtime = self.engine_of(engines, record).await?;
        self.forget(&slot, record.container_id());
        if record.container.is_some() {
            record.lost = Some(ExitCause { reason, exit_code: None });
        }
        self.clear_container(&*runtime, record).await
    }
}

impl SlotRecord {
    /// Why the slot's container was lost. If its replacement never became ready, this is the reason for that
    /// replacement.
    pub(super) fn loss(&self) -> ExitCause {
        let of_news = || self.news.as_ref().map(|it| ExitCause { reason: it.reason, exit_code: it.exit_code });
        self.lost.or_else(of_news).unwrap_or(ExitCause { reason: Reason::Vanished, exit_code: None })
    }

    /// Records a replacement, merged with an earlier one that was not reported yet.
    pub(super) fn replaced(&mut self, files_lost: bool) {
        let loss = self.loss();
        self.lost = None;
        let (before, from) = (self.news.take(), self.generation);
        self.generation = from.saturating_add(1);
        self.news = Some(Replacement {
            reason: loss.reason,
            exit_code: loss.exit_code,
            from: before.as_ref().map_or(from, |it| it.from),
            to: self.generation,
            files_lost: files_lost || before.is_some_and(|it| it.files_lost),
        });
    }
}
