//! Rooms: the containers that a session gets without asking for them, at most one for each role (workspace.md 1).
//!
//! [`Rooms::ensure`] gives the link to one, and makes or replaces its container when it has to. What a room is made of
//! comes from the caller as a [`Blueprint`], which is asked for only then. The volume stays over all containers of a
//! room; [`Rooms::end`] alone removes it.
//!
//! A room's container is a container like any other: made by [`begin`](crate::begin), remembered in a record of its own,
//! healed by [`reconcile`](crate::reconcile). What only rooms have is in a [`SlotRecord`] beside it.
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
mod held;
mod lease;
mod limits;
mod look;
mod make;
mod reap;
mod record;
mod registry;
mod replacement;
mod slot_state;
#[cfg(test)]
mod tests;

pub use self::ask::{Blueprint, Fill, Filling, Ready, RoomAsk};
pub use self::end::{EndedRooms, Ending};
pub use self::error::{BoxError, RoomError};
pub use self::event::{EndReason, RoomDeed, RoomEvent, Tell};
pub use self::limits::RoomTerms;
use self::record::PATIENCE;
pub use self::record::RoomView;
pub(crate) use self::record::SlotRecord;
pub use self::registry::Rooms;
use self::registry::{lease_from, millis};
pub use self::replacement::{Reason, Recreated};
use self::slot_state::{Slot, There, Using};
