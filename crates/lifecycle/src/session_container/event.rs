//! Events of slots, for logs.

use std::path::PathBuf;

use coracle_types::{ContainerId, ContainerName, ContainerPath, ImageId};
use serde::Serialize;

use super::{Reason, SlotError, SlotRecord};
use crate::slot::{SlotId, SlotRole};
use crate::{Error, SaveReport};

/// What hears of events.
pub type SlotObserver<'a> = dyn Fn(SlotEvent) + Send + Sync + 'a;

/// What was done to a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotEvent {
    /// The session.
    pub session: ContainerName,
    /// Which of its slots.
    pub role: SlotRole,
    /// Which container of it.
    pub generation: u32,
    /// The engine's id of that, where there is one.
    pub container_id: Option<ContainerId>,
    /// What it was.
    pub what: ContainerEvent,
}

/// What can be done to a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ContainerEvent {
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
        /// How long it took until the slot could be used.
        ready_ms: u64,
    },
    /// It was removed because it was unused.
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
    /// Work was saved before it was removed.
    Saved {
        /// Where on the host.
        location: PathBuf,
        /// Files of it.
        files: u64,
        /// And their bytes.
        bytes: u64,
        /// Files that were not saved.
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

/// Why a slot ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// The client disconnected.
    Disconnect,
    /// The process got a signal to end.
    Signal,
    /// At the request of a call or command.
    Command,
    /// Its process is dead, and the lease over.
    LeaseExpired,
    /// It had been there for as long as it may.
    Lifetime,
}

impl SlotRecord {
    pub(super) fn event(&self, what: ContainerEvent) -> SlotEvent {
        SlotEvent {
            session: self.session.clone(),
            role: self.role,
            generation: self.generation,
            container_id: self.container_id().cloned(),
            what,
        }
    }

    /// Reports what was saved, and that the slot is gone.
    pub(super) fn report_end(&self, saved: &[SaveReport], observer: &SlotObserver<'_>, reason: EndReason) {
        for SaveReport { location, files, bytes, left_out, .. } in saved.iter().cloned() {
            observer(self.event(ContainerEvent::Saved { location, files, bytes, left_out }));
        }
        observer(self.event(ContainerEvent::Ended { reason }));
    }

    /// Reports that a step of its removal failed.
    pub(super) fn cleanup_failed(&self, step: &'static str, err: &dyn std::error::Error) -> SlotEvent {
        let error = err.to_string();
        tracing::warn!(session = %self.session, step, error, "a slot cannot be removed");
        self.event(ContainerEvent::CleanupFailed { step, error })
    }

    /// There was no time for its end.
    pub(super) fn late(&self) -> SlotError {
        Error::Busy { name: self.session.to_string() }.into()
    }

    /// As who keeps a log of engines knows its container.
    pub(super) fn tag(&self) -> SlotId<'_> {
        SlotId { session: &self.session, role: self.role, generation: self.generation }
    }
}
