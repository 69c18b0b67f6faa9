//! SessionContainers: the containers that a session gets without asking for them, at most one for each role (workspace.md 1).
//!
//! [`SessionContainers::ensure`] gives the link to one, and makes or replaces its container when it has to. What a slot is made of
//! comes from the caller as a [`ContainerTemplate`], which is asked for only then. The volume stays over all containers of a
//! slot; [`SessionContainers::end`] alone removes it.
//!
//! A slot's container is a container like any other: made by [`begin`](crate::begin), remembered in a record of its own,
//! healed by [`reconcile`](crate::reconcile). What only slots have is in a [`SlotRecord`] beside it.
//!
//! **Invariant:** containers of a slot are made and removed under its lock alone: a mutex of this process, then a file.
//! **Invariant:** a slot that answers is given without a call to the engine and, but for once a minute, without a write.
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
mod replacement;
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
pub use self::replacement::{Reason, Recreated};
pub use self::request::{ContainerTemplate, EnsureRequest, Ready, VolumeInit, VolumeInitFuture};
use self::slot_state::{Slot, There, Using};
