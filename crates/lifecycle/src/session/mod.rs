//! Rooms: the containers that a session gets without asking for them, at most one for each role (workspace.md 1).
//!
//! [`Rooms::ensure`] gives the link to one, and makes or replaces its container when it has to. What a room is made of
//! comes from the caller as a [`Blueprint`], which is asked for only then. The volume stays over all containers of a
//! room; [`Rooms::end`] alone removes it.
//!
//! A room's container is a container like any other: made by [`begin`](crate::begin), remembered in a record of its own,
//! healed by [`reconcile`](crate::reconcile). What only rooms have is in a [`RoomRecord`] beside it.
//!
//! **Invariant:** containers of a room are made and removed under its lock alone: a mutex of this process, then a file.
//! **Invariant:** a room that answers is given without a call to the engine and, but for once a minute, without a write.
//! **Invariant:** no name of a session reaches an engine's name.

mod adopt;
mod baseline;
mod end;
mod ensure;
mod expire;
mod held;
mod look;
mod make;
mod record;
#[cfg(test)]
mod tests;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle_runtime::link::Link;
use coracle_runtime::{
    ByteSize, ContainerId, ContainerName, ContainerPath, CreateSpec, Ids, Image, ImageId, Policy, ProcessId, VolumeName,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::end::{EndedRooms, Ending};
pub(crate) use self::record::RoomRecord;
pub use self::record::RoomView;
use crate::lease::Moment;
use crate::record::Role;
use crate::{Error, GuestProgram, Links, Saved, Store};

/// Whoever wants a room waits so long for somebody who is at it.
const PATIENCE: Duration = Duration::from_secs(120);

/// An error that only the caller understands.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What a room is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoomRole {
    /// Files and commands.
    Workspace,
    /// Snippets of code.
    Run,
    /// The workflows of a sandbox, which is no agent's session: it has a key for a name, and outlives every process.
    /// What was installed in its container is kept as well as its volume, so one that ended is started again.
    Sandbox,
}

impl RoomRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Workspace, Self::Run, Self::Sandbox];

    /// The word of files and labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.role().as_str()
    }

    pub(crate) fn role(self) -> Role {
        match self {
            Self::Workspace => Role::Workspace,
            Self::Run => Role::Run,
            Self::Sandbox => Role::Sandbox,
        }
    }

    /// The part of names.
    fn short(self) -> &'static str {
        match self {
            Self::Workspace => "ws",
            Self::Run => "run",
            Self::Sandbox => "sbx",
        }
    }

    /// Its container is used again when it ended.
    fn is_started_again(self) -> bool {
        self == Self::Sandbox
    }
}

/// Why a container of a room was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It ended, or its guest fell silent.
    Crashed,
    /// The kernel ended it for memory.
    Oom,
    /// The engine does not have it any more.
    Vanished,
    /// Nobody used it for long.
    Idle,
    /// It would be made otherwise now.
    SpecChanged,
    /// A command in it went on beyond its time.
    Timeout,
    /// It had ended and was started again, with the files that it had.
    Restarted,
    /// It was never fit for use.
    NotReady,
    /// It had been there for as long as it may, and went with its files.
    Lifetime,
}

impl Reason {
    /// The word of messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crashed => "crashed",
            Self::Oom => "oom",
            Self::Vanished => "vanished",
            Self::Idle => "idle",
            Self::SpecChanged => "spec_changed",
            Self::Timeout => "timeout",
            Self::Restarted => "restarted",
            Self::NotReady => "not_ready",
            Self::Lifetime => "lifetime",
        }
    }

    /// It counts for the loop of failures.
    fn is_failure(self) -> bool {
        matches!(self, Self::Crashed | Self::Oom | Self::Vanished)
    }
}

/// A replacement, to be told once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recreated {
    /// Why.
    pub reason: Reason,
    /// What PID 1 ended with, where that is known.
    pub exit_code: Option<i64>,
    /// The generation that was last told of.
    pub from: u32,
    /// The one that is there now.
    pub to: u32,
    /// The volume is gone as well.
    pub files_lost: bool,
}

/// How long things may take, and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomTerms {
    /// A container that nobody uses.
    pub idle: Duration,
    /// A sandbox that nobody uses.
    pub sandbox_idle: Duration,
    /// A room of a session, with its volume, from when that was made.
    pub lifetime: Duration,
    /// The same for a sandbox.
    pub sandbox_lifetime: Duration,
    /// A lease without renewal.
    pub lease: Duration,
}

impl Default for RoomTerms {
    /// 15 minutes, 60 minutes, 8 hours, 7 days, 120 seconds.
    fn default() -> Self {
        let minutes = |it: u64| Duration::from_secs(it * 60);
        Self {
            idle: minutes(15),
            sandbox_idle: minutes(60),
            lifetime: minutes(8 * 60),
            sandbox_lifetime: minutes(7 * 24 * 60),
            lease: minutes(2),
        }
    }
}

/// Who wants which room.
#[derive(Clone, Copy)]
pub struct RoomAsk<'a> {
    /// The session.
    pub session: &'a ContainerName,
    /// Which of its rooms.
    pub role: RoomRole,
    /// A digest of all that the person's settings say of it: a container of another one is replaced.
    pub spec_hash: &'a str,
    /// Who runs commands in it.
    pub user: Ids,
    /// Nobody in it is root, and PID 1 is that user. A container that is otherwise is not used, whoever is in it.
    pub rootless: bool,
    /// The process whose end is the end of the session, if there is one.
    pub owner: Option<&'a ProcessId>,
    /// Hears of what is done.
    pub tell: &'a Tell<'a>,
}

impl std::fmt::Debug for RoomAsk<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RoomAsk").field("session", &self.session).field("role", &self.role).finish_non_exhaustive()
    }
}

/// Which container of which room.
#[derive(Clone, Copy, Debug)]
pub struct RoomTag<'a> {
    /// The session.
    pub session: &'a ContainerName,
    /// Which of its rooms.
    pub role: RoomRole,
    /// The how manieth container of that.
    pub generation: u32,
}

/// What hears of events.
pub type Tell<'a> = dyn Fn(RoomEvent) + Send + Sync + 'a;

/// What a room's container is made of.
#[derive(Debug)]
pub struct Blueprint {
    /// All but its name and the volume, which are the room's.
    pub spec: CreateSpec,
    /// What decides whether it may be.
    pub policy: Policy,
    /// The image, which is on the engine.
    pub image: Image,
    /// The image as it was named.
    pub reference: String,
    /// Its PID 1.
    pub guest: GuestProgram,
    /// Where the volume is.
    pub volume_at: ContainerPath,
    /// Where commands start.
    pub workdir: ContainerPath,
    /// What every command finds in its environment. No secrets.
    pub env: BTreeMap<String, String>,
    /// What fits into the volume, where the engine can see to that.
    pub volume_size: Option<ByteSize>,
    /// Puts something into a volume that is new, before anybody gets the room.
    pub fill: Option<Fill>,
    /// Names that lie read-only over its writable binds.
    pub protected: Vec<String>,
    /// At most this many containers altogether.
    pub max_containers_total: usize,
    /// Version of the tool.
    pub tool_version: String,
}

impl Blueprint {
    /// Who runs commands in it.
    fn user(&self) -> Ids {
        self.spec.exec_user
    }
}

/// The filling of a volume, under way.
pub type Filling = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// Fills a volume.
pub struct Fill(pub Box<dyn FnOnce(Link) -> Filling + Send>);

impl std::fmt::Debug for Fill {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fill")
    }
}

/// A room that can be used. As long as this is held, somebody is in it.
#[derive(Debug)]
pub struct Ready {
    /// The connection to its guest.
    pub link: Link,
    /// What is remembered of it.
    pub room: RoomView,
    /// A replacement that nobody was told of.
    pub news: Option<Recreated>,
    /// Its container was made by this call.
    pub made: bool,
    /// It is as an earlier caller wanted it, and stays so while somebody is in it.
    pub spec_pending: bool,
    _using: Using,
}

/// Why there is no room.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    /// It is over, or just being ended.
    #[error("the session `{0}` has ended")]
    Ended(ContainerName),
    /// One container after the other failed.
    #[error("the container failed again and again, most recently: {}", reason.as_str())]
    CrashLoop {
        /// How the last one ended.
        reason: Reason,
        /// No other is made for so long.
        retry_after: Duration,
    },
    /// It was made, could not be used, and is removed again.
    #[error("Workspace failed readiness checks.")]
    NotReady(#[source] BoxError),
    /// It could not be made.
    #[error("the container could not be made: {0}")]
    NotMade(#[source] Error),
    /// What is in its volume is another user's, and nobody inside could give it away.
    #[error("the files of `{session}` are those of the user {before} inside, and its containers would run as {now}")]
    OtherUser {
        /// The session.
        session: ContainerName,
        /// Whose they are.
        before: Ids,
        /// Who would run commands now.
        now: Ids,
    },
    /// The caller could not say what it is made of.
    #[error("{0}")]
    Plan(#[source] BoxError),
    /// The caller could not fill it.
    #[error("{0}")]
    Fill(#[source] BoxError),
    /// Anything else.
    #[error(transparent)]
    Lifecycle(#[from] Error),
}

impl From<crate::StoreError> for RoomError {
    fn from(err: crate::StoreError) -> Self {
        Self::Lifecycle(err.into())
    }
}

impl From<coracle_runtime::Error> for RoomError {
    fn from(err: coracle_runtime::Error) -> Self {
        Self::Lifecycle(err.into())
    }
}

/// What was done to a room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoomEvent {
    /// The session.
    pub session: ContainerName,
    /// Which of its rooms.
    pub role: RoomRole,
    /// Which container of it.
    pub generation: u32,
    /// The engine's id of that, where there is one.
    pub container_id: Option<ContainerId>,
    /// What it was.
    pub what: RoomDeed,
}

/// What can be done to a room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum RoomDeed {
    /// A container was made.
    Created {
        /// The image as it was named.
        image: String,
        /// The image itself.
        image_digest: ImageId,
        /// How long that took, with its start.
        duration_ms: u64,
        /// Where something of outside is in it.
        mounts: Vec<ContainerPath>,
    },
    /// It was started and answers.
    Started {
        /// How long it took until the room could be used.
        ready_ms: u64,
    },
    /// It was removed, since nobody used it.
    IdleCleanup {
        /// For how long.
        idle_seconds: u64,
    },
    /// One that is gone was replaced.
    RecreatedAfterFailure {
        /// How it ended.
        reason: Reason,
        /// What PID 1 ended with.
        exit_code: Option<i64>,
        /// The kernel ended it for memory.
        oom: bool,
        /// Its generation.
        from: u32,
        /// That of the one which takes its place.
        to: u32,
    },
    /// It is gone with all that it had.
    Ended {
        /// Why.
        reason: EndReason,
    },
    /// Work was kept before it went.
    Saved {
        /// Where on the host.
        location: PathBuf,
        /// Files of it.
        files: u64,
        /// And their bytes.
        bytes: u64,
        /// What was not kept.
        left_out: u64,
    },
    /// Something of it could not be removed.
    CleanupFailed {
        /// At what.
        step: &'static str,
        /// Why.
        error: String,
    },
}

/// Why a room ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Whoever used it went.
    Disconnect,
    /// The process was told to end.
    Signal,
    /// Somebody said so.
    Command,
    /// Its process is dead, and the lease over.
    LeaseExpired,
    /// It had been there for as long as it may.
    Lifetime,
}

impl RoomRecord {
    fn event(&self, what: RoomDeed) -> RoomEvent {
        RoomEvent {
            session: self.session.clone(),
            role: self.role,
            generation: self.generation,
            container_id: self.container_id.clone(),
            what,
        }
    }

    fn saved(&self, saved: &Saved) -> RoomEvent {
        let Saved { location, files, bytes, left_out, .. } = saved;
        let (location, files, bytes, left_out) = (location.clone(), *files, *bytes, *left_out);
        self.event(RoomDeed::Saved { location, files, bytes, left_out })
    }

    /// As who keeps a log of engines knows its container.
    fn tag(&self) -> RoomTag<'_> {
        RoomTag { session: &self.session, role: self.role, generation: self.generation }
    }
}

/// Which room.
type Key = (ContainerName, RoomRole);

/// The rooms of all sessions, as far as this process uses them. Clones are handles to the same.
#[derive(Clone, Debug)]
pub struct Rooms {
    store: Store,
    links: Links,
    terms: RoomTerms,
    held: Arc<Mutex<BTreeMap<Key, Arc<Room>>>>,
    ended: Arc<Mutex<BTreeSet<ContainerName>>>,
}

/// A room as this process knows it.
#[derive(Debug, Default)]
struct Room {
    /// Held by whoever makes or removes a container of it.
    door: tokio::sync::Mutex<()>,
    /// Calls of this process in it.
    calls: AtomicUsize,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// What the last look found.
    there: Option<There>,
    /// When a call of this process last began or ended.
    used: Option<Moment>,
    /// When that was last written down.
    written: Option<tokio::time::Instant>,
}

/// A container that answered.
#[derive(Clone, Debug)]
struct There {
    link: Link,
    view: RoomView,
    spec_hash: String,
}

impl Room {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) {
        self.seen().used = Some(Moment::now());
    }
}

/// A call that is in a room.
#[derive(Debug)]
struct Using(Arc<Room>);

impl Using {
    fn new(room: Arc<Room>) -> Self {
        room.calls.fetch_add(1, Ordering::Relaxed);
        room.used();
        Self(room)
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        self.0.used();
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Rooms {
    /// None yet.
    #[must_use]
    pub fn new(store: Store, links: Links, terms: RoomTerms) -> Self {
        Self { store, links, terms, held: Arc::default(), ended: Arc::default() }
    }

    /// What is remembered of all rooms of all sessions.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn all(&self) -> Result<Vec<RoomView>, RoomError> {
        Ok(self.store.rooms()?.iter().map(RoomRecord::view).collect())
    }

    fn room(&self, session: &ContainerName, role: RoomRole) -> Arc<Room> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.entry((session.clone(), role)).or_default().clone()
    }

    fn held(&self) -> Vec<(Key, Arc<Room>)> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(|(key, room)| (key.clone(), room.clone())).collect()
    }

    fn forget(&self, room: &Room, id: Option<&ContainerId>) {
        room.seen().there = None;
        if let Some(id) = id {
            self.links.forget(id);
        }
    }

    fn has_ended(&self, session: &ContainerName) -> bool {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).contains(session)
    }

    fn fresh_name(&self, role: RoomRole) -> ContainerName {
        let namespace = self.store.signer().namespace();
        let name = format!("{namespace}-{}-{}", role.short(), coracle_runtime::random_hex::<8>());
        ContainerName::parse(name).expect("a namespace and hex digits are a name")
    }

    fn fresh_volume(&self, role: RoomRole) -> VolumeName {
        VolumeName::parse(self.fresh_name(role).as_str()).expect("both have one grammar")
    }
}

fn millis(it: Duration) -> u64 {
    u64::try_from(it.as_millis()).unwrap_or(u64::MAX)
}

fn lease_from(now: Timestamp, lease: Duration) -> (Timestamp, Timestamp) {
    let lasts = jiff::SignedDuration::try_from(lease).unwrap_or(jiff::SignedDuration::MAX);
    (now, now.checked_add(lasts).unwrap_or(Timestamp::MAX))
}
