//! The making of a slot's container, or its undoing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coracle_client::{Link, WriteFile};
use coracle_protocol::{EnsureUser, FileRef, UserSpec};
use coracle_runtime::{Access, ContainerRuntime, VolumeMount, admit};
use coracle_types::{ByteSize, ContainerPath, Ids, Input, random_hex};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::record::{ExitCause, LastContainer, SlotVolume};
use super::{
    BoxError, ContainerEvent, ContainerTemplate, EnsureRequest, Ready, Reason, SessionContainers, Slot, SlotError,
    SlotRecord, VolumeInit, lease_from, millis,
};
use crate::clock::ClockReading;
use crate::volume::NewVolume;
use crate::{Creation, NewRecord, volume};

/// A guest that was just started answers by then.
const ANSWERS: Duration = Duration::from_secs(10);

/// And the checks that the slot can be used.
const PROVEN: Duration = Duration::from_secs(30);

/// What a container of a slot is made from, once it is known that it may be.
pub(super) struct Parts<'a> {
    pub(super) runtime: &'a dyn ContainerRuntime,
    pub(super) request: EnsureRequest<'a>,
    pub(super) plan: ContainerTemplate,
}

impl SessionContainers {
    /// The first container of a slot. When it fails nothing is left of it.
    pub(super) async fn first(
        &self,
        runtime: &Arc<dyn ContainerRuntime>,
        slot: &Arc<Slot>,
        request: EnsureRequest<'_>,
        plan: ContainerTemplate,
    ) -> Result<Ready, SlotError> {
        let used = ClockReading::now();
        let expires_at = lease_from(used.wall, self.terms.lease);
        let key = request.key();
        let mut record = SlotRecord::begun(&**runtime, key, self.fresh_volume(request.role), used);
        record.is_to_be(&plan, request.spec_hash);
        (record.owner, record.expires_at) = (request.owner.cloned(), expires_at);
        let volume = record.volume.name.clone();
        let made = self.container(Parts { runtime: &**runtime, request, plan }, record).await;
        match made {
            Ok((record, link)) => self.finish(slot, request, (record, link), true),
            Err(err) => {
                let name = volume.to_string();
                match runtime.remove_volume(&name).await {
                    Ok(_) => self.store.forget_slot(key)?,
                    // The record stays, so that the next call finds it.
                    Err(err) => tracing::warn!(%volume, %err, "the volume of a slot that was not made stays"),
                }
                Err(err)
            }
        }
    }

    /// Another container for a slot that lost its own. Its record says so until there is one.
    pub(super) async fn replace(
        &self,
        runtime: &Arc<dyn ContainerRuntime>,
        slot: &Arc<Slot>,
        request: EnsureRequest<'_>,
        (mut record, plan): (SlotRecord, ContainerTemplate),
    ) -> Result<Ready, SlotError> {
        let (loss, before) = (record.lost, record.clone());
        let there = volume::is_there(&**runtime, &self.store, &record.volume.name).await?;
        if record.volume.filled.is_none() {
            // It was never ready, so nothing was lost with it.
            record.lost = None;
        } else {
            record.replaced(!there);
        }
        record.is_to_be(&plan, request.spec_hash);
        if !there {
            (record.volume.filled, record.volume.begun) = (None, Some(ClockReading::now()));
        }
        if let Some(ExitCause { reason, exit_code }) = loss.filter(|it| it.reason.is_failure()) {
            record.restarts.push(Timestamp::now());
            let (oom, from, to) = (reason == Reason::Oom, before.generation, record.generation);
            (request.observer)(record.event(ContainerEvent::RecreatedAfterFailure {
                reason,
                exit_code,
                oom,
                from,
                to,
            }));
        }
        record.refused_until = None;
        match self.container(Parts { runtime: &**runtime, request, plan }, record).await {
            Ok((record, link)) => self.finish(slot, request, (record, link), true),
            Err(err) => {
                if !there && let Err(err) = runtime.remove_volume(before.volume.name.as_str()).await {
                    // One that stays would pass for the one that was lost.
                    tracing::warn!(volume = %before.volume.name, %err, "the volume of a slot that was not made stays");
                }
                // Nothing was replaced, and the loss is still to be reported.
                self.store.save_slot(&before)?;
                Err(err)
            }
        }
    }

    /// Makes the container that a record is to have, and proves that it can be used; or leaves nothing of it.
    pub(super) async fn container(
        &self,
        parts: Parts<'_>,
        mut record: SlotRecord,
    ) -> Result<(SlotRecord, Link), SlotError> {
        let Parts { runtime, request, mut plan } = parts;
        let name = self.fresh_name(record.role);
        record.name = Some(name.clone());
        // What is killed from here on is found by what the record names.
        self.store.save_slot(&record)?;
        self.make_volume(runtime, &record, plan.volume_size).await?;
        plan.spec.name = name;
        let SlotVolume { name, at, .. } = record.volume.clone();
        plan.spec.volumes.push(VolumeMount { name, at, access: Access::ReadWrite });
        let draft = draft(&plan, &record, request.owner.cloned());
        let mut making = Creation::begin(runtime, &self.store, draft).await.map_err(SlotError::NotMade)?;
        making.add_labels(self.labels(&record));
        let fill = plan.fill.take().filter(|_| record.volume.filled.is_none());
        let begun = Instant::now();
        let mut created = created(&plan);
        let usable = async {
            let (link, took) = self.usable(runtime, &mut making, plan).await?;
            if let ContainerEvent::Created { duration_ms, .. } = &mut created {
                *duration_ms = millis(took);
            }
            if let Some(VolumeInit(fill)) = fill {
                fill(link.clone()).await.map_err(SlotError::VolumeInit)?;
            }
            record.started_at = Timestamp::now();
            Ok((link, *record.volume.filled.get_or_insert(record.started_at)))
        };
        let (link, filled) = match usable.await {
            Ok(made) => made,
            Err(err) => {
                making.record().id.iter().for_each(|id| self.links.forget(id));
                for failed in making.undo().await {
                    (request.observer)(record.cleanup_failed("undo", &failed));
                }
                return Err(err);
            }
        };
        making.set_filled_at(filled);
        record.has_container(Arc::new(making.ready(Value::Null, Map::new())?));
        (request.observer)(record.event(created));
        self.store.save_slot(&record)?;
        (request.observer)(record.event(ContainerEvent::Started { ready_ms: millis(begun.elapsed()) }));
        Ok((record, link))
    }

    async fn usable(
        &self,
        runtime: &dyn ContainerRuntime,
        making: &mut Creation<'_>,
        plan: ContainerTemplate,
    ) -> Result<(Link, Duration), SlotError> {
        let begun = Instant::now();
        let (user, volume_at) = (plan.user(), plan.volume_at.clone());
        let own: Vec<_> = plan.spec.tmpfs.iter().filter(|it| it.mode & 0o077 == 0).map(|it| it.at.clone()).collect();
        let admitted = admit(plan.spec, &plan.policy).map_err(|err| SlotError::NotMade(err.into()))?;
        let made = making.create_container(admitted, &plan.image, &plan.reference, Some(&plan.guest)).await;
        let (container, took) = (made.map_err(SlotError::NotMade)?, begun.elapsed());
        tracing::debug!(container = container.name, engine = %runtime.kind(), "a slot is made");
        let not_ready = |err: BoxError| SlotError::NotReady(err);
        let met = timeout(ANSWERS, making.wait_for_guest(&self.links, &container)).await;
        let link =
            met.map_err(|_| not_ready("its guest did not answer".into()))?.map_err(|err| not_ready(err.into()))?;
        let proven = timeout(PROVEN, prove(&link, user, &volume_at, &own)).await;
        let proven =
            proven.map_err(|_| not_ready("its guest took too long".into())).and_then(|it| it.map_err(not_ready));
        proven.map(|()| (link, took))
    }

    async fn make_volume(
        &self,
        runtime: &dyn ContainerRuntime,
        record: &SlotRecord,
        size: Option<ByteSize>,
    ) -> Result<(), SlotError> {
        let SlotVolume { name, user, filled, .. } = &record.volume;
        if filled.is_some() {
            return Ok(());
        }
        let labels = vec![("session", record.session.to_string()), ("exec_user", user.to_string())];
        let new = NewVolume { name, role: record.role.as_str(), labels, size };
        volume::create(runtime, &self.store, new).await.map_err(SlotError::NotMade)
    }

    /// Labels from which a lost record is restored.
    fn labels(&self, record: &SlotRecord) -> BTreeMap<String, String> {
        let own = [
            ("generation", record.generation.to_string()),
            ("volume", record.volume.name.to_string()),
            ("volume_at", record.volume.at.to_string()),
            ("spec", record.spec_hash.clone()),
        ];
        own.into_iter().map(|(name, value)| (self.store.signer().key(name), value)).collect()
    }
}

impl SlotRecord {
    /// Its next container is made of that.
    fn is_to_be(&mut self, plan: &ContainerTemplate, spec_hash: &str) {
        let (image, image_id) = (plan.reference.clone(), Some(plan.image.id.clone()));
        self.last = Some(LastContainer { image, image_id, workdir: plan.workdir.clone() });
        self.env.clone_from(&plan.env);
        spec_hash.clone_into(&mut self.spec_hash);
        (self.volume.user, self.volume.at) = (plan.user(), plan.volume_at.clone());
    }
}

/// The event of a creation, without its duration.
fn created(plan: &ContainerTemplate) -> ContainerEvent {
    let volumes = plan.spec.volumes.iter().map(|it| it.at.clone());
    ContainerEvent::Created {
        image: plan.reference.clone(),
        image_digest: plan.image.id.clone(),
        duration_ms: 0,
        mounts: plan.spec.mounts.iter().map(|it| it.at.clone()).chain(volumes).collect(),
    }
}

fn draft(plan: &ContainerTemplate, record: &SlotRecord, owner: Option<coracle_types::ProcessId>) -> NewRecord {
    NewRecord {
        name: plan.spec.name.clone(),
        role: record.role.into(),
        session: record.session.to_string(),
        purpose: None,
        persistent: false,
        workdir: plan.workdir.clone(),
        mount_cwd: false,
        request_digests: BTreeMap::new(),
        tool_version: plan.tool_version.clone(),
        compose_project: None,
        compose_joined: false,
        compose_file: None,
        snapshot: None,
        proxied: false,
        replay: None,
        owner,
        protected: plan.protected.clone(),
        // SessionContainers have no share in what a session may make.
        max_containers: usize::MAX,
        max_containers_total: plan.max_containers_total,
    }
}

/// Gives the user what is the user's, and makes and removes a file as the user does.
async fn prove(link: &Link, user: Ids, volume_at: &ContainerPath, own: &[ContainerPath]) -> Result<(), BoxError> {
    let Ids { uid, gid } = user;
    for place in own.iter().chain([volume_at]) {
        link.ensure_user(EnsureUser { uid, gid, workdir: place.to_string(), bound: Vec::new() }).await?;
    }
    let file = FileRef {
        user: UserSpec::Ids { uid, gid: Some(gid) },
        path: volume_at.join(&format!(".ready-{}", random_hex::<8>()))?.to_string(),
        follow: false,
    };
    let content = Input::Bytes(Vec::new());
    let put = WriteFile { at: file.clone(), mode: Some(0o600), exact: false, parents: false, replace: false, content };
    link.put(put).await?;
    Ok(link.remove(file, false).await?)
}
