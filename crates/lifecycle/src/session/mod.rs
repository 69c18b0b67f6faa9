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
mod ask;
mod baseline;
mod end;
mod ensure;
mod error;
mod event;
mod expire;
mod held;
mod look;
mod make;
mod record;
#[cfg(test)]
mod tests;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coracle_runtime::link::Link;
use coracle_runtime::{ContainerId, ContainerName, VolumeName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::ask::{Blueprint, Fill, Filling, Ready, RoomAsk};
pub use self::end::{EndedRooms, Ending};
pub use self::error::RoomError;
pub use self::event::{EndReason, RoomDeed, RoomEvent, Tell};
pub(crate) use self::record::RoomRecord;
pub use self::record::RoomView;
use crate::clock::Moment;
use crate::slot::RoomRole;
use crate::{Links, Store};

/// Whoever wants a room waits so long for somebody who is at it.
const PATIENCE: Duration = Duration::from_secs(120);

/// An error that only the caller understands.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

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
