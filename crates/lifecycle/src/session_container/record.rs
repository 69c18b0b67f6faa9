//! What is remembered of a slot: one file for each session and role.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coracle_host::fs::remove;
use coracle_runtime::ContainerRuntime;
use coracle_types::{ContainerId, ContainerName, ContainerPath, EngineKind, Ids, ImageId, ProcessId, VolumeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Reason, Replacement};
use crate::clock::ClockReading;
use crate::deferred::Deferred;
use crate::record::{BadRecord, Record, RecordState, summed_bytes, summed_value};
use crate::slot::{SlotKey, SlotRole};
use crate::store::{LoadOutcome, load_file, own_directory, write_whole};
use crate::{Lock, Result, Store, StoreError};

/// How long a call waits for another call that holds the slot.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// The version of the format.
const SCHEMA: u32 = 1;

/// Larger files are no records of slots.
const MAX_BYTES: usize = 64 << 10;

/// What anybody may know of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotInfo {
    /// The session.
    pub session: ContainerName,
    /// What it is for.
    pub role: SlotRole,
    /// The engine's full id of its container; missing between two containers.
    pub container_id: Option<ContainerId>,
    /// The image as it was named.
    pub image: String,
    /// Where commands start.
    pub workdir: ContainerPath,
    /// What every command finds in its environment. No secrets.
    pub env: BTreeMap<String, String>,
    /// When its container was started.
    pub started_at: Timestamp,
    /// When a call last began or ended.
    pub last_used_at: Timestamp,
    /// Which container of the slot this is, from 1.
    pub generation: u32,
    /// The image itself.
    #[serde(skip)]
    pub image_id: Option<ImageId>,
    /// Who runs commands in it.
    #[serde(skip)]
    pub user: Ids,
    /// No process in it is root.
    #[serde(skip)]
    pub rootless: bool,
}

/// A slot: the place of a container in a session. It outlives its containers, and each of them has a [`Record`] of its
/// own, to which `name` points. One file in the state directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlotRecord {
    pub(crate) schema: u32,
    pub(crate) session: ContainerName,
    pub(crate) role: SlotRole,
    /// Which container this is, from 1.
    pub(crate) generation: u32,
    /// Of its container, also of one that is just being made.
    pub(crate) name: Option<ContainerName>,
    /// The record of that name, once it is ready. Read along with the slot, never stored in it.
    #[serde(skip)]
    pub(crate) container: Option<Arc<Record>>,
    /// Stands in for the record of a container where none is ready.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) last: Option<LastContainer>,
    #[serde(flatten)]
    pub(crate) volume: SlotVolume,
    /// What every command finds in its environment.
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) spec_hash: String,
    pub(crate) started_at: Timestamp,
    /// When containers were replaced that had failed.
    pub(crate) restarts: Vec<Timestamp>,
    /// Replacements are refused until then.
    pub(crate) refused_until: Option<Timestamp>,
    /// Why there is no container any more.
    pub(crate) lost: Option<ExitCause>,
    /// What the next result has to tell.
    pub(crate) news: Option<Replacement>,
    /// When a call last began or ended.
    pub(crate) used: ClockReading,
    /// The process whose end is the end of the session; missing for sessions that end on request.
    pub(crate) owner: Option<ProcessId>,
    pub(crate) expires_at: Timestamp,
    /// It is being ended, and may not be used any more.
    pub(crate) ending: bool,
    /// Its time was over, and it could not be ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) put_off: Option<Deferred>,
    /// What a later version wrote.
    #[serde(flatten)]
    pub(crate) later: Map<String, Value>,
}

/// The volume of a slot, which stays over all of its containers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlotVolume {
    #[serde(rename = "volume")]
    pub(crate) name: VolumeName,
    /// Where it is inside.
    #[serde(rename = "volume_at")]
    pub(crate) at: ContainerPath,
    /// The engine that has it.
    pub(crate) engine: EngineKind,
    pub(crate) endpoint: String,
    /// Whose files are in it.
    pub(crate) user: Ids,
    /// When it was filled: what was written since is the agent's work.
    pub(crate) filled: Option<Timestamp>,
    /// When it was created, by both clocks; missing if an earlier version created it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) begun: Option<ClockReading>,
}

/// What a slot records of a container that was removed or is being created: its volume can be read with the same image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastContainer {
    pub(crate) image: String,
    pub(crate) image_id: Option<ImageId>,
    pub(crate) workdir: ContainerPath,
}

impl From<&Record> for LastContainer {
    fn from(it: &Record) -> Self {
        Self { image: it.image.clone(), image_id: it.image_id.clone(), workdir: it.workdir.clone() }
    }
}

/// Fields that earlier versions stored in a slot, and that are read from the container's record or from `used` now.
const MOVED: [&str; 4] = ["container_id", "rootless", "last_used_at", "renewed_at"];

/// How a container was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExitCause {
    pub(crate) reason: Reason,
    pub(crate) exit_code: Option<i64>,
}

impl SlotRecord {
    /// One that begins with a volume and no container. Its lease is over at once, and its user is unknown.
    pub(super) fn begun(
        runtime: &dyn ContainerRuntime,
        key: SlotKey<'_>,
        volume: VolumeName,
        used: ClockReading,
    ) -> Self {
        Self {
            schema: SCHEMA,
            session: key.session.clone(),
            role: key.role,
            generation: 1,
            name: None,
            container: None,
            last: None,
            volume: SlotVolume {
                name: volume,
                at: ContainerPath::root(),
                engine: runtime.kind(),
                endpoint: runtime.endpoint().address,
                user: Ids { uid: 65534, gid: 65534 },
                filled: None,
                begun: Some(used.clone()),
            },
            env: BTreeMap::new(),
            spec_hash: String::new(),
            started_at: used.wall,
            restarts: Vec::new(),
            refused_until: None,
            lost: None,
            news: None,
            owner: None,
            expires_at: used.wall,
            used,
            ending: false,
            put_off: None,
            later: Map::new(),
        }
    }

    pub(crate) fn key(&self) -> SlotKey<'_> {
        SlotKey::new(&self.session, self.role)
    }

    /// The engine's id of its container, once that is ready.
    pub(crate) fn container_id(&self) -> Option<&ContainerId> {
        self.container.as_ref()?.id.as_ref()
    }

    /// No process in it is root, and PID 1 runs as its user.
    pub(super) fn is_rootless(&self) -> bool {
        self.container.as_ref().is_none_or(|it| it.guest.as_ref().is_some_and(|guest| guest.own.is_some()))
    }

    /// What its container is like, or was.
    pub(super) fn last_container(&self) -> Option<LastContainer> {
        self.container.as_deref().map(LastContainer::from).or_else(|| self.last.clone())
    }

    /// That container is ready. Its maker may have been killed before it could say so here.
    pub(super) fn has_container(&mut self, container: Arc<Record>) {
        self.volume.filled = self.volume.filled.or(container.filled);
        (self.container, self.last) = (Some(container), None);
    }

    /// What it had is all that is known of its container from here on.
    pub(super) fn has_none(&mut self) {
        self.last = self.last_container();
        (self.container, self.name) = (None, None);
    }

    pub(crate) fn view(&self) -> SlotInfo {
        let container = self.last_container();
        let (image, image_id, workdir) = match container {
            Some(LastContainer { image, image_id, workdir }) => (image, image_id, workdir),
            None => (String::new(), None, ContainerPath::root()),
        };
        SlotInfo {
            session: self.session.clone(),
            role: self.role,
            container_id: self.container_id().cloned(),
            image,
            workdir,
            env: self.env.clone(),
            started_at: self.started_at,
            last_used_at: self.used.wall,
            generation: self.generation,
            image_id,
            user: self.volume.user,
            rootless: self.is_rootless(),
        }
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, BadRecord> {
        if bytes.len() > MAX_BYTES {
            return Err(BadRecord::Long);
        }
        let mut record: Self = summed_value(bytes, SCHEMA)?;
        record.later.retain(|name, _| !MOVED.contains(&name.as_str()));
        Ok(record)
    }
}

impl Store {
    /// Waits for the lock of a slot. To create a container takes its time, so a call that comes meanwhile has patience.
    pub(super) async fn lock_slot(&self, key: SlotKey<'_>) -> Result<Lock> {
        self.lock_within(&slot_lock(key), key.session.as_str(), PATIENCE).await
    }

    /// The lock of a slot, unless another call holds it.
    pub(super) fn try_lock_slot(&self, key: SlotKey<'_>) -> Result<Option<Lock>> {
        self.try_lock_file(&slot_lock(key))
    }

    pub(super) fn session_dir(&self, session: &ContainerName) -> PathBuf {
        self.root().join("sessions").join(session.as_str())
    }

    fn slot_file(&self, key: SlotKey<'_>) -> PathBuf {
        self.session_dir(key.session).join(format!("{}.json", key.role.as_str()))
    }

    /// Reads one record. A damaged one is moved aside, once.
    pub(crate) fn load_slot(&self, key: SlotKey<'_>) -> Result<LoadOutcome<Box<SlotRecord>>, StoreError> {
        let mut loaded = load_file(&self.slot_file(key), |bytes| match SlotRecord::from_bytes(bytes)? {
            it if it.key() == key => Ok(Box::new(it)),
            _ => Err(BadRecord::Name),
        })?;
        if let LoadOutcome::Record(slot) = &mut loaded
            && let Some(record) = self.ready_record(slot.name.as_ref())?
        {
            slot.has_container(record);
        }
        Ok(loaded)
    }

    /// The record of that name, if it is that of a container that was made to its end.
    pub(super) fn ready_record(&self, name: Option<&ContainerName>) -> Result<Option<Arc<Record>>, StoreError> {
        let record = name.map(|it| self.load(it)).transpose()?.and_then(LoadOutcome::record);
        Ok(record.filter(|it| it.state == RecordState::Ready))
    }

    pub(crate) fn save_slot(&self, record: &SlotRecord) -> Result<(), StoreError> {
        own_directory(&self.session_dir(&record.session))?;
        write_whole(&self.slot_file(record.key()), &summed_bytes(record))
    }

    pub(super) fn forget_slot(&self, key: SlotKey<'_>) -> Result<(), StoreError> {
        let file = self.slot_file(key);
        remove(&file).map_err(StoreError::io(&file))?;
        if key.role == SlotRole::Workspace {
            self.forget_baseline(key.session)?;
        }
        // The other role may be there, or something that was set aside: then it stays.
        let _ = std::fs::remove_dir(self.session_dir(key.session));
        Ok(())
    }

    /// The records of all slots. Damaged ones are set aside and left out; those of a newer version are left out.
    pub(crate) fn slots(&self) -> Result<Vec<SlotRecord>, StoreError> {
        Ok(self.all_slots()?.0)
    }

    /// How many containers each engine has by the records of this state directory; a session's files without a container
    /// count as one. Asks no engine.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn engines_in_use(&self) -> Result<BTreeMap<EngineKind, usize>, StoreError> {
        let slots = self.slots()?.into_iter().filter(|slot| slot.container.is_none()).map(|slot| slot.volume.engine);
        let mut in_use = BTreeMap::new();
        for engine in self.records()?.into_iter().map(|record| record.engine).chain(slots) {
            *in_use.entry(engine).or_default() += 1;
        }
        Ok(in_use)
    }

    /// Files of containers and sessions that a newer version wrote.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn newer_files(&self) -> Result<Vec<PathBuf>, StoreError> {
        let mut newer = self.all_records()?.1;
        newer.extend(self.all_slots()?.1);
        Ok(newer)
    }

    /// The records of all slots, and the files that a newer version wrote.
    fn all_slots(&self) -> Result<(Vec<SlotRecord>, Vec<PathBuf>), StoreError> {
        let dir = self.root().join("sessions");
        let entries = std::fs::read_dir(&dir).map_err(StoreError::io(&dir))?;
        let (mut slots, mut newer) = (Vec::new(), Vec::new());
        for session in entries.filter_map(|it| ContainerName::parse(it.ok()?.file_name().to_str()?).ok()) {
            for role in SlotRole::ALL {
                match self.load_slot(SlotKey::new(&session, role)) {
                    Ok(loaded) => slots.extend(loaded.record().map(|it| *it)),
                    Err(StoreError::Newer(file)) => newer.push(file),
                    Err(err) => return Err(err),
                }
            }
        }
        slots.sort_by(|a, b| (&a.session, a.role.as_str()).cmp(&(&b.session, b.role.as_str())));
        Ok((slots, newer))
    }
}

fn slot_lock(key: SlotKey<'_>) -> String {
    format!("session-{}-{}", key.role.as_str(), key.session)
}
