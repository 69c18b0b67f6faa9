//! What is remembered of a room: one file for each session and role (workspace.md 1.2).

use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_runtime::{
    ContainerId, ContainerName, ContainerPath, ContainerRuntime, EngineKind, Ids, ImageId, ProcessId, VolumeName,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Reason, Recreated};
use crate::clock::Moment;
use crate::record::{summed_bytes, summed_value};
use crate::slot::RoomRole;
use crate::store::{own_directory, read_own, write_whole};
use crate::{Lock, Result, Store, StoreError};

/// Whoever wants a room waits so long for somebody who is at it.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// The version of the format.
const SCHEMA: u32 = 1;

/// Larger files are no records of rooms.
const MAX_BYTES: usize = 64 << 10;

/// What anybody may know of a room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoomView {
    /// The session.
    pub session: ContainerName,
    /// What it is for.
    pub role: RoomRole,
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
    /// Which container of the room this is, from 1.
    pub generation: u32,
    /// The image itself.
    #[serde(skip)]
    pub image_id: Option<ImageId>,
    /// Who runs commands in it.
    #[serde(skip)]
    pub user: Ids,
    /// Nobody in it is root.
    #[serde(skip)]
    pub rootless: bool,
}

/// One file in the state directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoomRecord {
    pub(crate) schema: u32,
    pub(crate) session: ContainerName,
    pub(crate) role: RoomRole,
    pub(crate) container_id: Option<ContainerId>,
    pub(crate) image: String,
    pub(crate) workdir: ContainerPath,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) started_at: Timestamp,
    pub(crate) last_used_at: Timestamp,
    pub(crate) generation: u32,
    pub(crate) engine: EngineKind,
    pub(crate) endpoint: String,
    /// Of its container, also of one that is just being made.
    pub(crate) name: Option<ContainerName>,
    pub(crate) volume: VolumeName,
    pub(crate) volume_at: ContainerPath,
    /// When the volume was filled: what was written since is the agent's work.
    pub(crate) filled: Option<Timestamp>,
    /// When the volume was made, by both clocks; missing where an earlier version made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) begun: Option<Moment>,
    pub(crate) image_id: Option<ImageId>,
    pub(crate) spec_hash: String,
    pub(crate) user: Ids,
    /// Nobody in it is root, and PID 1 is that user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) rootless: bool,
    /// When containers were replaced that had failed.
    pub(crate) restarts: Vec<Timestamp>,
    /// Replacements are refused until then.
    pub(crate) refused_until: Option<Timestamp>,
    /// Why there is no container any more.
    pub(crate) lost: Option<Loss>,
    /// What the next result has to tell.
    pub(crate) news: Option<Recreated>,
    /// By both clocks.
    pub(crate) used: Moment,
    /// Whose end is the end of the session; missing for sessions that end when they are told to.
    pub(crate) owner: Option<ProcessId>,
    pub(crate) renewed_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    /// It is being ended, and nobody may use it any more.
    pub(crate) ending: bool,
    /// Its time was over, and it could not be ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) put_off: Option<PutOff>,
    /// What a later version wrote.
    #[serde(flatten)]
    pub(crate) later: Map<String, Value>,
}

/// How a container was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Loss {
    pub(crate) reason: Reason,
    pub(crate) exit_code: Option<i64>,
}

/// An end that did not come about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PutOff {
    /// How often it was tried.
    pub(crate) times: u32,
    /// When last.
    pub(crate) at: Moment,
}

/// A record, or a file that should have been one.
#[derive(Debug)]
pub(crate) enum RoomFile {
    Record(Box<RoomRecord>),
    /// Set aside.
    Damaged,
    Missing,
}

impl RoomRecord {
    /// One that begins with a volume and no container. Its lease is over at once, and its user is nobody.
    pub(super) fn begun(
        runtime: &dyn ContainerRuntime,
        (session, role): (&ContainerName, RoomRole),
        volume: VolumeName,
        used: Moment,
    ) -> Self {
        Self {
            schema: SCHEMA,
            session: session.clone(),
            role,
            container_id: None,
            image: String::new(),
            workdir: ContainerPath::root(),
            env: BTreeMap::new(),
            started_at: used.wall,
            last_used_at: used.wall,
            generation: 1,
            engine: runtime.kind(),
            endpoint: runtime.endpoint().address,
            name: None,
            volume,
            volume_at: ContainerPath::root(),
            filled: None,
            begun: Some(used.clone()),
            image_id: None,
            spec_hash: String::new(),
            user: Ids { uid: 65534, gid: 65534 },
            rootless: false,
            restarts: Vec::new(),
            refused_until: None,
            lost: None,
            news: None,
            owner: None,
            renewed_at: used.wall,
            expires_at: used.wall,
            used,
            ending: false,
            put_off: None,
            later: Map::new(),
        }
    }

    pub(crate) fn view(&self) -> RoomView {
        RoomView {
            session: self.session.clone(),
            role: self.role,
            container_id: self.container_id.clone(),
            image: self.image.clone(),
            workdir: self.workdir.clone(),
            env: self.env.clone(),
            started_at: self.started_at,
            last_used_at: self.last_used_at,
            generation: self.generation,
            image_id: self.image_id.clone(),
            user: self.user,
            rootless: self.rootless,
        }
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > MAX_BYTES {
            return Err("it is too long".into());
        }
        let record: Self = summed_value(bytes).map_err(|err| err.to_string())?;
        if record.schema == SCHEMA { Ok(record) } else { Err(format!("version {} is not known", record.schema)) }
    }
}

impl Store {
    /// Waits for the lock of a room. To make a container takes its time, so whoever comes meanwhile has patience.
    pub(super) async fn lock_room(&self, (session, role): (&ContainerName, RoomRole)) -> Result<Lock> {
        Lock::take_within(&self.room_lock(session, role), session.as_str(), PATIENCE).await
    }

    /// The lock of a room, unless somebody holds it.
    pub(super) fn try_lock_room(&self, (session, role): (&ContainerName, RoomRole)) -> Result<Option<Lock>> {
        Ok(Lock::try_take(&self.room_lock(session, role))?)
    }

    fn room_lock(&self, session: &ContainerName, role: RoomRole) -> PathBuf {
        self.root().join("locks").join(format!("session-{}-{session}", role.as_str()))
    }

    pub(super) fn session_dir(&self, session: &ContainerName) -> PathBuf {
        self.root().join("sessions").join(session.as_str())
    }

    fn room_file(&self, session: &ContainerName, role: RoomRole) -> PathBuf {
        self.session_dir(session).join(format!("{}.json", role.as_str()))
    }

    /// Reads one record. A damaged one is moved aside, once.
    pub(crate) fn load_room(&self, (session, role): (&ContainerName, RoomRole)) -> Result<RoomFile, StoreError> {
        let file = self.room_file(session, role);
        let bytes = match read_own(&file) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(RoomFile::Missing),
            Err(err @ (StoreError::Link(_) | StoreError::Owner(_))) => return set_aside(&file, &err.to_string()),
            Err(err) => return Err(err),
        };
        match RoomRecord::from_bytes(&bytes) {
            Ok(it) if it.session == *session && it.role == role => Ok(RoomFile::Record(Box::new(it))),
            Ok(_) => set_aside(&file, "it is that of another room"),
            Err(why) => set_aside(&file, &why),
        }
    }

    pub(crate) fn save_room(&self, record: &RoomRecord) -> Result<(), StoreError> {
        own_directory(&self.session_dir(&record.session))?;
        write_whole(&self.room_file(&record.session, record.role), &summed_bytes(record))
    }

    pub(super) fn forget_room(&self, (session, role): (&ContainerName, RoomRole)) -> Result<(), StoreError> {
        let file = self.room_file(session, role);
        match std::fs::remove_file(&file) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(StoreError::io(&file)(err)),
            _ => {}
        }
        if role == RoomRole::Workspace {
            self.forget_baseline(session)?;
        }
        // The other role may be there, or something that was set aside: then it stays.
        let _ = std::fs::remove_dir(self.session_dir(session));
        Ok(())
    }

    /// The records of all rooms. Damaged ones are set aside and left out.
    pub(crate) fn rooms(&self) -> Result<Vec<RoomRecord>, StoreError> {
        let dir = self.root().join("sessions");
        let entries = match std::fs::read_dir(&dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(StoreError::io(&dir))?,
        };
        let name = |it: io::Result<DirEntry>| ContainerName::parse(it.ok()?.file_name().to_str()?).ok();
        let mut rooms = Vec::new();
        for session in entries.filter_map(name) {
            for role in RoomRole::ALL {
                if let RoomFile::Record(record) = self.load_room((&session, role))? {
                    rooms.push(*record);
                }
            }
        }
        rooms.sort_by(|a, b| (&a.session, a.role.as_str()).cmp(&(&b.session, b.role.as_str())));
        Ok(rooms)
    }
}

fn set_aside(file: &Path, why: &str) -> Result<RoomFile, StoreError> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let aside = file.with_file_name(format!("{name}.bad-{}", Timestamp::now().as_millisecond()));
    tracing::warn!(file = %file.display(), why, "the record of a session is set aside");
    std::fs::rename(file, aside).map_err(StoreError::io(file))?;
    Ok(RoomFile::Damaged)
}
