//! Containers as things that are made, remembered, proven ours and removed.
//!
//! A [`Record`] is what we remember of a container, one file in the [`Store`] each. [`begin`] opens the [`Making`] of
//! one, which ends in a ready record or is undone; [`find`] leads from what a caller wrote to a container that is proven
//! ours; [`destroy`] removes it with all that only it used.
//!
//! **Invariant:** nothing is done to a container that is not proven ours: a record of ours holds its full id and the
//! engine gives that id, or its labels carry a right signature.
//! **Invariant:** the intent to make a container is on disk before the engine hears of it, so that what a killed process
//! left is found and removed by the next one.
//! **Invariant:** without a known exec user a command is refused, never run as root.
//! **Invariant:** no record holds a secret.

#![warn(missing_docs)]

mod copy;
mod create;
mod destroy;
mod error;
mod exec;
mod find;
mod gone;
mod guest;
mod list;
mod lock;
mod network;
mod protect;
mod reconcile;
mod record;
mod restart;
mod shares;
mod store;

pub use copy::{Copied, CopyLimits, CopyRequest, copy_in, copy_out};
pub use create::{Draft, Making, begin, fresh_name};
pub use destroy::{Destroyed, destroy};
pub use error::{Error, Kind, Result};
pub use exec::{Hint, Session, guided_session, hint, session};
pub use find::{Engines, Found, at_hand, find};
pub use guest::{GuestProgram, GuestRecord, Links};
pub use list::{Listed, Listing, list};
pub use lock::Lock;
pub use protect::DEFAULT_PROTECTED;
pub use reconcile::reconcile;
pub use record::{Held, Record, RecordedJob, RecordedMount, Role, State};
pub use restart::restart;
pub use store::{Store, StoreError};
