//! Restores the lost record of a slot from the records and labels of its container and volume.

use std::collections::BTreeSet;
use std::path::Component;
use std::sync::Arc;

use coracle_runtime::{Container, ContainerRuntime, LabelFilter, MountPoint, Volume};
use coracle_types::{ContainerName, ContainerPath, Handle, Ids, VolumeName};
use jiff::Timestamp;

use super::inspect::{is_of, record_of};
use super::record::ExitCause;
use super::{Reason, SessionContainers, SlotError, SlotRecord};
use crate::clock::ClockReading;
use crate::find::remember;
use crate::record::RecordState;
use crate::slot::{SlotKey, SlotRole};
use crate::store::LoadOutcome;
use crate::{Engines, recorded_engines};

impl SessionContainers {
    /// The record of a slot that has none, by the record of its container; where `seen`, also by what engines show. What
    /// is not proven to be of that slot is left alone.
    pub(super) async fn adopt(
        &self,
        engines: &dyn Engines,
        key: SlotKey<'_>,
        seen: bool,
    ) -> Result<Option<SlotRecord>, SlotError> {
        let known = self.store.records()?.into_iter().filter(|it| {
            it.role == key.role.into()
                && it.session == key.session.as_str()
                && it.state == RecordState::Ready
                && it.id.is_some()
        });
        for record in known {
            let runtime = engines.for_record(record.engine, &record.endpoint).await?;
            let Some(id) = &record.id else { continue };
            if let Ok(container) = runtime.inspect(&Handle::from(id)).await
                && let Some(slot) =
                    self.of_container(&*runtime, key.role, &container).filter(|it| it.session == *key.session)
            {
                return self.adopted(slot).map(Some);
            }
        }
        if !seen {
            return Ok(None);
        }
        self.adopt_from(&*engines.preferred().await?, key).await
    }

    async fn adopt_from(
        &self,
        runtime: &dyn ContainerRuntime,
        key: SlotKey<'_>,
    ) -> Result<Option<SlotRecord>, SlotError> {
        let Some(slot) = self.shown(runtime, key.role, Some(key.session)).await?.into_iter().next() else {
            return Ok(None);
        };
        slot.container.iter().try_for_each(|it| remember(&self.store, it))?;
        self.adopted(slot).map(Some)
    }

    /// The slots of that role, of one session or all, that an engine shows: by their containers, then by their volumes.
    async fn shown(
        &self,
        runtime: &dyn ContainerRuntime,
        role: SlotRole,
        session: Option<&ContainerName>,
    ) -> Result<Vec<SlotRecord>, SlotError> {
        let label = |name: &str, value: &str| (self.store.signer().key(name), Some(value.to_owned()));
        let of_session = session.map(|it| label("session", it.as_str()));
        let its = LabelFilter([label("role", role.as_str())].into_iter().chain(of_session).collect());
        let (containers, volumes) = (runtime.list(&its).await?, runtime.list_volumes(&its).await?);
        let of_containers = containers.iter().filter_map(|container| {
            let slot = self.of_container(runtime, role, container).filter(|slot| is_itself(slot, container));
            if slot.is_none() {
                tracing::warn!(container = container.name, "it has our labels without proof, and is left alone");
            }
            slot
        });
        let of_volumes = volumes.iter().filter_map(|it| self.of_volume(runtime, role, it));
        Ok(of_containers.chain(of_volumes).collect())
    }

    /// Sessions with a container or volume of that role on an engine, proven to be Coracle's, and without a record.
    ///
    /// # Errors
    /// If an engine with managed objects does not respond, or the records cannot be read.
    pub async fn forgotten(&self, engines: &dyn Engines, role: SlotRole) -> Result<Vec<ContainerName>, SlotError> {
        let mut found = BTreeSet::new();
        for runtime in recorded_engines(engines, &self.store.records()?).await? {
            found.extend(self.shown(&*runtime, role, None).await?.into_iter().map(|it| it.session));
        }
        let known = self.store.slots()?;
        Ok(found.into_iter().filter(|it| !known.iter().any(|slot| slot.session == *it && slot.role == role)).collect())
    }

    /// Restores the record of such a slot. Whether there is one now.
    ///
    /// # Errors
    /// As for [`forgotten`](Self::forgotten).
    pub async fn recall(&self, engines: &dyn Engines, key: SlotKey<'_>) -> Result<bool, SlotError> {
        let _all = self.store.lock_slot(key).await?;
        if let LoadOutcome::Record(_) = self.store.load_slot(key)? {
            return Ok(true);
        }
        for runtime in recorded_engines(engines, &self.store.records()?).await? {
            if self.adopt_from(&*runtime, key).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn adopted(&self, slot: SlotRecord) -> Result<SlotRecord, SlotError> {
        tracing::info!(session = %slot.session, role = slot.role.as_str(), "a slot is known again");
        self.store.save_slot(&slot)?;
        Ok(slot)
    }

    /// The slot of a container, from its labels, if they prove that it is Coracle's.
    fn of_container(
        &self,
        runtime: &dyn ContainerRuntime,
        role: SlotRole,
        container: &Container,
    ) -> Option<SlotRecord> {
        let label = |name: &str| container.labels.get(&self.store.signer().key(name)).map(String::as_str);
        let session = ContainerName::parse(label("session")?).ok()?;
        let mut slot =
            without_container(runtime, SlotKey::new(&session, role), VolumeName::parse(label("volume")?).ok()?);
        if !is_of(&self.store, runtime, &slot, container) {
            return None;
        }
        let record = record_of(&self.store, runtime, container)?;
        slot.volume.at = ContainerPath::parse(label("volume_at")?).ok()?;
        slot.volume.user = record.exec_user?;
        slot.volume.filled = record.filled.or(Some(record.created));
        Some(SlotRecord {
            name: Some(record.name.clone()),
            generation: label("generation")?.parse().ok()?,
            spec_hash: label("spec")?.to_owned(),
            started_at: record.created,
            owner: record.owner.clone(),
            lost: None,
            container: Some(Arc::new(record)),
            ..slot
        })
    }

    /// The slot of a volume, if it is provably Coracle's. Labels can be copied, so they name the volume that they were
    /// created for.
    fn of_volume(&self, runtime: &dyn ContainerRuntime, role: SlotRole, volume: &Volume) -> Option<SlotRecord> {
        let label = |name: &str| volume.labels.get(&self.store.signer().key(name)).map(String::as_str);
        if label("name") != Some(&volume.name) || !self.store.signed(runtime.kind(), &volume.labels) {
            return None;
        }
        let session = ContainerName::parse(label("session")?).ok()?;
        let mut slot = without_container(runtime, SlotKey::new(&session, role), VolumeName::parse(&volume.name).ok()?);
        if let Some(user) = label("exec_user").and_then(|it| Ids::parse(it).ok()) {
            slot.volume.user = user;
        }
        Some(slot)
    }
}

/// A slot of which the volume is left.
fn without_container(runtime: &dyn ContainerRuntime, key: SlotKey<'_>, volume: VolumeName) -> SlotRecord {
    let mut slot = SlotRecord::begun(runtime, key, volume, ClockReading::now());
    slot.volume.filled = Some(Timestamp::UNIX_EPOCH);
    slot.lost = Some(ExitCause { reason: Reason::Vanished, exit_code: None });
    slot
}

/// Labels can be copied, even signed ones. A name can be used only once while its container exists, and a container
/// with both has the slot's volume.
pub(super) fn is_itself(slot: &SlotRecord, container: &Container) -> bool {
    let has_volume = |it: &MountPoint| {
        let is_it = |part: Component<'_>| part.as_os_str() == slot.volume.name.as_str();
        it.target == slot.volume.at.as_str() && it.source.components().any(is_it)
    };
    slot.name.as_ref().is_some_and(|it| it.as_str() == container.name) && container.mounts.iter().any(has_volume)
}
