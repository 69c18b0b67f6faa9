//! The containers that a session gets without a request, one for each [slot](crate::SlotRole).
//!
//! [`SessionContainers::ensure`] returns a link to the slot's container, and creates or replaces it first if necessary.
//! The caller describes the container by a [`ContainerTemplate`], which is requested only then. The volume outlives the
//! slot's containers; only [`SessionContainers::end`] and the end of its lifetime remove it.
//!
//! The container itself is an ordinary one: created by [`Creation`](crate::Creation), described by its own record, repaired
//! by [`reconcile`](crate::reconcile). A [`SlotRecord`] beside that holds what only slots have.
//!
//! **Invariant:** a slot's containers are created and removed only under its lock: a mutex of this process, then a file.
//! **Invariant:** a container that answers is returned without an engine call, and with a write at most once a minute.
//! **Invariant:** no name of a session reaches an engine's name.

mod adopt;
mod baseline;
mod create;
mod end;
mod ensure;
mod error;
mod event;
mod expire;
mod held_link;
mod inspect;
mod lease;
mod limits;
mod record;
mod registry;
mod request;
mod slot_state;
#[cfg(test)]
mod tests;

pub use self::end::{EndOptions, EndedSession};
pub use self::error::{BoxError, SlotError};
pub use self::event::{ContainerEvent, EndReason, SlotEvent, SlotObserver};
pub use self::limits::SlotLimits;
use self::record::PATIENCE;
pub use self::record::SlotInfo;
pub(crate) use self::record::SlotRecord;
pub use self::registry::SessionContainers;
use self::registry::{lease_from, millis};
pub use self::request::{ContainerTemplate, EnsureRequest, Ready, VolumeInit, VolumeInitFuture};
use self::slot_state::{LiveContainer, Slot, SlotUse};
pub use coracle_types::replacement::{Reason, Replacement};
