//! A room whose record is lost, made anew from what else is known of it.

use std::sync::Arc;

use coracle_runtime::{
    Container, ContainerName, ContainerPath, ContainerRuntime, Handle, LabelFilter, VolumeAct, VolumeName,
};
use jiff::Timestamp;
use serde_json::Map;

use super::look::{is_of, record_of};
use super::record::Loss;
use super::{Reason, RoomError, RoomRecord, RoomRole, Rooms};
use crate::Engines;
use crate::lease::Moment;
use crate::record::State;

impl Rooms {
    /// The record of a room that has none, by the record of its container; where one was damaged, also by what engines
    /// show. What is not proven to be of that room is left alone.
    pub(super) async fn adopt(
        &self,
        engines: &dyn Engines,
        key: (&ContainerName, RoomRole),
        damaged: bool,
    ) -> Result<Option<RoomRecord>, RoomError> {
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
        if !damaged {
            return Ok(None);
        }
        let runtime = engines.preferred().await?;
        let signer = self.store.signer();
        let label = |name: &str, value: &str| (signer.key(name), Some(value.to_owned()));
        let its = LabelFilter(vec![label("role", key.1.as_str()), label("session", key.0.as_str())]);
        for container in runtime.list(&its).await? {
            match self.of_container(&runtime, key, &container) {
                Some(room) => return self.adopted(room).map(Some),
                None => {
                    tracing::warn!(container = container.name, "it has our labels without proof, and is left alone");
                }
            }
        }
        for volume in runtime.volume(VolumeAct::List(its)).await? {
            let named = VolumeName::parse(&volume.name).ok();
            if let Some(name) = named.filter(|_| self.store.signed(runtime.kind(), &volume.labels)) {
                return self.adopted(self.of_volume(&runtime, key, name)).map(Some);
            }
        }
        Ok(None)
    }

    fn adopted(&self, room: RoomRecord) -> Result<RoomRecord, RoomError> {
        tracing::info!(session = %room.session, role = room.role.as_str(), "a room is known again");
        self.store.save_room(&room)?;
        Ok(room)
    }

    fn of_container(
        &self,
        runtime: &Arc<dyn ContainerRuntime>,
        key: (&ContainerName, RoomRole),
        container: &Container,
    ) -> Option<RoomRecord> {
        let label = |name: &str| container.labels.get(&self.store.signer().key(name)).map(String::as_str);
        let volume = VolumeName::parse(label("volume")?).ok()?;
        let room = self.of_volume(runtime, key, volume);
        if !is_of(&self.store, &**runtime, &room, container) {
            return None;
        }
        let record = record_of(&self.store, &**runtime, container)?;
        Some(RoomRecord {
            container_id: Some(container.id.clone()),
            name: Some(record.name.clone()),
            generation: label("generation")?.parse().ok()?,
            volume_at: ContainerPath::parse(label("volume_at")?).ok()?,
            spec_hash: label("spec")?.to_owned(),
            image: record.image.clone(),
            image_id: record.image_id.clone(),
            workdir: record.workdir.clone(),
            user: record.exec_user?,
            filled: record.filled.or(Some(record.created)),
            started_at: record.created,
            owner: record.owner,
            lost: None,
            ..room
        })
    }

    /// A room of which the volume is left.
    fn of_volume(
        &self,
        runtime: &Arc<dyn ContainerRuntime>,
        (session, role): (&ContainerName, RoomRole),
        volume: VolumeName,
    ) -> RoomRecord {
        let used = Moment::now();
        RoomRecord {
            schema: RoomRecord::schema(),
            session: session.clone(),
            role,
            container_id: None,
            image: String::new(),
            workdir: ContainerPath::root(),
            env: std::collections::BTreeMap::new(),
            started_at: used.wall,
            last_used_at: used.wall,
            generation: 1,
            engine: runtime.kind(),
            endpoint: runtime.endpoint().address,
            name: None,
            volume,
            volume_at: ContainerPath::root(),
            filled: Some(Timestamp::UNIX_EPOCH),
            begun: Some(used.clone()),
            image_id: None,
            spec_hash: String::new(),
            user: coracle_runtime::Ids { uid: 65534, gid: 65534 },
            restarts: Vec::new(),
            refused_until: None,
            lost: Some(Loss { reason: Reason::Vanished, exit_code: None }),
            news: None,
            renewed_at: used.wall,
            expires_at: used.wall,
            used,
            owner: None,
            ending: false,
            later: Map::new(),
        }
    }
}
