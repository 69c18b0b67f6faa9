//! What this process knows of a room.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_runtime::link::Link;

use super::record::RoomView;
use crate::clock::Moment;

/// A room as this process knows it.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Held by whoever makes or removes a container of it.
    pub(super) door: tokio::sync::Mutex<()>,
    /// Calls of this process in it.
    pub(super) calls: AtomicUsize,
    pub(super) seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// What the last look found.
    pub(super) there: Option<There>,
    /// When a call of this process last began or ended.
    pub(super) used: Option<Moment>,
    /// When that was last written down.
    pub(super) written: Option<tokio::time::Instant>,
}

/// A container that answered.
#[derive(Clone, Debug)]
pub(super) struct There {
    pub(super) link: Link,
    pub(super) view: RoomView,
    pub(super) spec_hash: String,
}

impl Room {
    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn used(&self) {
        self.seen().used = Some(Moment::now());
    }
}

/// A call that is in a room.
#[derive(Debug)]
pub(super) struct Using(pub(super) Arc<Room>);

impl Using {
    pub(super) fn new(room: Arc<Room>) -> Self {
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
