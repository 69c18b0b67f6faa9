//! A room whose record is lost, made anew from what else is known of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Component;
use std::sync::Arc;

use coracle_runtime::{
    Container, ContainerName, ContainerPath, ContainerRuntime, Handle, Ids, LabelFilter, MountPoint, Volume, VolumeAct,
    VolumeName,
};
use jiff::Timestamp;

use super::look::{is_of, record_of};
use super::record::{Loss, SlotFile};
use super::{Reason, RoomError, Rooms, SlotRecord};
use crate::clock::Moment;
use crate::find::remember;
use crate::record::State;
use crate::slot::RoomRole;
use crate::{Engines, asked};

impl Rooms {
    /// The record of a room that has none, by the record of its container; where `seen`, also by what engines show. What
    /// is not proven to be of that room is left alone.
    pub(super) async fn adopt(
        &self,
        engines: &dyn Engines,
        key: (&ContainerName, RoomRole),
        seen: bool,
    ) -> Result<Option<SlotRecord>, RoomError> {
        let known = self.store.records()?.into_iter().filter(|it| {
            it.role == key.1.role() && it.session == key.0.as_str() && it.state == State::Ready && it.id.is_some()
        });
        for record in known {
            let runtime = engines.of(record.engine, &record.endpoint).await?;
            let Some(id) = &record.id else { continue };
            if let Ok(container) = runtime.inspect(&Handle::from(id)).await
                && let Some(room) = self.of_container(&runtime, key, &container)
            {
                return self.adopted(room).map(Some);
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
        key: (&ContainerName, RoomRole),
    ) -> Result<Option<SlotRecord>, RoomError> {
        let signer = self.store.signer();
        let label = |name: &str, value: &str| (signer.key(name), Some(value.to_owned()));
        let its = LabelFilter(vec![label("role", key.1.as_str()), label("session", key.0.as_str())]);
        for container in runtime.list(&its).await? {
            match self.of_container(runtime, key, &container).filter(|room| is_itself(room, &container)) {
                Some(room) => {
                    room.container.iter().try_for_each(|it| remember(&self.store, it))?;
                    return self.adopted(room).map(Some);
                }
                None => {
                    tracing::warn!(container = container.name, "it has our labels without proof, and is left alone");
                }
            }
        }
        for volume in runtime.volume(VolumeAct::List(its)).await? {
            if let Some(name) = self.own_volume(&**runtime, &volume) {
                let says = |name: &str| volume.labels.get(&signer.key(name)).map(String::as_str);
                let mut room = self.of_volume(runtime, key, name);
                if let Some(user) = says("exec_user").and_then(|it| Ids::parse(it).ok()) {
                    room.volume.user = user;
                }
                return self.adopted(room).map(Some);
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
    pub async fn forgotten(&self, engines: &dyn Engines, role: RoomRole) -> Result<Vec<ContainerName>, RoomError> {
        let signer = self.store.signer();
        let its = LabelFilter(vec![(signer.key("role"), Some(role.as_str().to_owned()))]);
        let mut found = BTreeSet::new();
        for runtime in asked(engines, &self.store.records()?).await? {
            let session = |labels: &BTreeMap<String, String>| {
                ContainerName::parse(labels.get(&signer.key("session"))?.as_str()).ok()
            };
            for it in runtime.list(&its).await? {
                let ours = |of: &ContainerName| {
                    self.of_container(&runtime, (of, role), &it).is_some_and(|room| is_itself(&room, &it))
                };
                found.extend(session(&it.labels).filter(ours));
            }
            for it in runtime.volume(VolumeAct::List(its.clone())).await? {
                found.extend(session(&it.labels).filter(|_| self.own_volume(&*runtime, &it).is_some()));
            }
        }
        let known = self.store.slots()?;
        Ok(found.into_iter().filter(|it| !known.iter().any(|room| room.session == *it && room.role == role)).collect())
    }

    /// Makes the record of such a room anew. Whether there is one now.
    ///
    /// # Errors
    /// As for [`forgotten`](Self::forgotten).
    pub async fn recall(&self, engines: &dyn Engines, key: (&ContainerName, RoomRole)) -> Result<bool, RoomError> {
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

    fn adopted(&self, room: SlotRecord) -> Result<SlotRecord, RoomError> {
        tracing::info!(session = %room.session, role = room.role.as_str(), "a room is known again");
        self.store.save_slot(&room)?;
        Ok(room)
    }

    fn of_container(
        &self,
        runtime: &Arc<dyn ContainerRuntime>,
        key: (&ContainerName, RoomRole),
        container: &Container,
    ) -> Option<SlotRecord> {
        let label = |name: &str| container.labels.get(&self.store.signer().key(name)).map(String::as_str);
        let volume = VolumeName::parse(label("volume")?).ok()?;
        let mut room = self.of_volume(runtime, key, volume);
        if !is_of(&self.store, &**runtime, &room, container) {
            return None;
        }
        let record = record_of(&self.store, &**runtime, container)?;
        room.volume.at = ContainerPath::parse(label("volume_at")?).ok()?;
        room.volume.user = record.exec_user?;
        room.volume.filled = record.filled.or(Some(record.created));
        Some(SlotRecord {
            name: Some(record.name.clone()),
            generation: label("generation")?.parse().ok()?,
            spec_hash: label("spec")?.to_owned(),
            started_at: record.created,
            owner: record.owner.clone(),
            lost: None,
            container: Some(Arc::new(record)),
            ..room
        })
    }

    /// A room of which the volume is left.
    fn of_volume(
        &self,
        runtime: &Arc<dyn ContainerRuntime>,
        key: (&ContainerName, RoomRole),
        volume: VolumeName,
    ) -> SlotRecord {
        let mut room = SlotRecord::begun(&**runtime, key, volume, Moment::now());
        room.volume.filled = Some(Timestamp::UNIX_EPOCH);
        room.lost = Some(Loss { reason: Reason::Vanished, exit_code: None });
        room
    }
}

/// Labels can be copied, also those that prove what is ours. Names cannot, as long as what has one is there; and whatever
/// has both has the room's volume.
pub(super) fn is_itself(room: &SlotRecord, container: &Container) -> bool {
    let has_volume = |it: &MountPoint| {
        let is_it = |part: Component<'_>| part.as_os_str() == room.volume.name.as_str();
        it.target == room.volume.at.as_str() && it.source.components().any(is_it)
    };
    room.name.as_ref().is_some_and(|it| it.as_str() == container.name) && container.mounts.iter().any(has_volume)
}
