//! A slot whose record is lost, made anew from what else is known of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Component;
use std::sync::Arc;

use coracle_runtime::{
    Container, ContainerName, ContainerPath, ContainerRuntime, Handle, Ids, LabelFilter, MountPoint, Volume, VolumeName,
};
use jiff::Timestamp;

use super::inspect::{is_of, record_of};
use super::record::{ExitCause, SlotFile};
use super::{Reason, SessionContainers, SlotError, SlotRecord};
use crate::clock::ClockReading;
use crate::find::remember;
use crate::record::State;
use crate::slot::SlotRole;
use crate::{Engines, asked};

impl SessionContainers {
    /// The record of a slot that has none, by the record of its container; where `seen`, also by what engines show. What
    /// is not proven to be of that slot is left alone.
    pub(super) async fn adopt(
        &self,
        engines: &dyn Engines,
        key: (&ContainerName, SlotRole),
        seen: bool,
    ) -> Result<Option<SlotRecord>, SlotError> {
        let known = self.store.records()?.into_iter().filter(|it| {
            it.role == key.1.into() && it.session == key.0.as_str() && it.state == State::Ready && it.id.is_some()
        });
        for record in known {
            let runtime = engines.of(record.engine, &record.endpoint).await?;
            let Some(id) = &record.id else { continue };
            if let Ok(container) = runtime.inspect(&Handle::from(id)).await
                && let Some(slot) = self.of_container(&runtime, key, &container)
            {
                return self.adopted(slot).map(Some);
            }
        }
        if !seen {
            return Ok(None);
        }
        self.adopt_from(&engines.preferred().await?, key).await
    }

    async fn adopt_from(
        &self,
        runtime: &Arc<dyn ContainerRuntime>,
        key: (&ContainerName, SlotRole),
    ) -> Result<Option<SlotRecord>, SlotError> {
        let signer = self.store.signer();
        let label = |name: &str, value: &str| (signer.key(name), Some(value.to_owned()));
        let its = LabelFilter(vec![label("role", key.1.as_str()), label("session", key.0.as_str())]);
        for container in runtime.list(&its).await? {
            match self.of_container(runtime, key, &container).filter(|slot| is_itself(slot, &container)) {
                Some(slot) => {
                    slot.container.iter().try_for_each(|it| remember(&self.store, it))?;
                    return self.adopted(slot).map(Some);
                }
                None => {
                    tracing::warn!(container = container.name, "it has our labels without proof, and is left alone");
                }
            }
        }
        for volume in runtime.list_volumes(&its).await? {
            if let Some(name) = self.own_volume(&**runtime, &volume) {
                let says = |name: &str| volume.labels.get(&signer.key(name)).map(String::as_str);
                let mut slot = self.of_volume(runtime, key, name);
                if let Some(user) = says("exec_user").and_then(|it| Ids::parse(it).ok()) {
                    slot.volume.user = user;
                }
                return self.adopted(slot).map(Some);
            }
        }
        Ok(None)
    }

    /// Its name, where it is proven ours: labels can be copied, and name the volume that they were made for.
    fn own_volume(&self, runtime: &dyn ContainerRuntime, volume: &Volume) -> Option<VolumeName> {
        let named = volume.labels.get(&self.store.signer().key("name"));
        let ours = named == Some(&volume.name) && self.store.signed(runtime.kind(), &volume.labels);
        VolumeName::parse(&volume.name).ok().filter(|_| ours)
    }

    /// Sessions with something of that role on an engine that is proven ours, and without a record.
    ///
    /// # Errors
    /// When an engine that holds some of ours does not answer, or the records cannot be read.
    pub async fn forgotten(&self, engines: &dyn Engines, role: SlotRole) -> Result<Vec<ContainerName>, SlotError> {
        let signer = self.store.signer();
        let its = LabelFilter(vec![(signer.key("role"), Some(role.as_str().to_owned()))]);
        let mut found = BTreeSet::new();
        for runtime in asked(engines, &self.store.records()?).await? {
            let session = |labels: &BTreeMap<String, String>| {
                ContainerName::parse(labels.get(&signer.key("session"))?.as_str()).ok()
            };
            for it in runtime.list(&its).await? {
                let ours = |of: &ContainerName| {
                    self.of_container(&runtime, (of, role), &it).is_some_and(|slot| is_itself(&slot, &it))
                };
                found.extend(session(&it.labels).filter(ours));
            }
            for it in runtime.list_volumes(&its).await? {
                found.extend(session(&it.labels).filter(|_| self.own_volume(&*runtime, &it).is_some()));
            }
        }
        let known = self.store.slots()?;
        Ok(found.into_iter().filter(|it| !known.iter().any(|slot| slot.session == *it && slot.role == role)).collect())
    }

    /// Makes the record of such a slot anew. Whether there is one now.
    ///
    /// # Errors
    /// As for [`forgotten`](Self::forgotten).
    pub async fn recall(&self, engines: &dyn Engines, key: (&ContainerName, SlotRole)) -> Result<bool, SlotError> {
        let _all = self.store.lock_slot(key).await?;
        if let SlotFile::Record(_) = self.store.load_slot(key)? {
            return Ok(true);
        }
        for runtime in asked(engines, &self.store.records()?).await? {
            if self.adopt_from(&runtime, key).await?.is_some() {
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

    fn of_container(
        &self,
        runtime: &Arc<dyn ContainerRuntime>,
        key: (&ContainerName, SlotRole),
        container: &Container,
    ) -> Option<SlotRecord> {
        let label = |name: &str| container.labels.get(&self.store.signer().key(name)).map(String::as_str);
        let volume = VolumeName::parse(label("volume")?).ok()?;
        let mut slot = self.of_volume(runtime, key, volume);
        if !is_of(&self.store, &**runtime, &slot, container) {
            return None;
        }
        let record = record_of(&self.store, &**runtime, container)?;
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

    /// A slot of which the volume is left.
    fn of_volume(
        &self,
        runtime: &Arc<dyn ContainerRuntime>,
        key: (&ContainerName, SlotRole),
        volume: VolumeName,
    ) -> SlotRecord {
        let mut slot = SlotRecord::begun(&**runtime, key, volume, ClockReading::now());
        slot.volume.filled = Some(Timestamp::UNIX_EPOCH);
        slot.lost = Some(ExitCause { reason: Reason::Vanished, exit_code: None });
        slot
    }
}

/// Labels can be copied, also those that prove what is ours. Names cannot, as long as what has one is there; and whatever
/// has both has the slot's volume.
pub(super) fn is_itself(slot: &SlotRecord, container: &Container) -> bool {
    let has_volume = |it: &MountPoint| {
        let is_it = |part: Component<'_>| part.as_os_str() == slot.volume.name.as_str();
        it.target == slot.volume.at.as_str() && it.source.components().any(is_it)
    };
    slot.name.as_ref().is_some_and(|it| it.as_str() == container.name) && container.mounts.iter().any(has_volume)
}
