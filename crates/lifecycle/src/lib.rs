//! Containers as things that are made, remembered, proven ours and removed.
//!
//! A [`Record`] is what we remember of a container, one file in the [`Store`] each. [`begin`] opens the [`Creation`] of
//! one, which ends in a ready record or is undone; [`find`] leads from what a caller wrote to a container that is proven
//! ours; [`destroy`] removes it with all that only it used.
//!
//! **Invariant:** nothing is done to a container that is not proven ours: a record of ours holds its full id and the
//! engine gives that id, or its labels carry a right signature.
//! **Invariant:** the intent to make a container is on disk before the engine hears of it, so that what a killed process
//! left is found and removed by the next one.
//! **Invariant:** without a known exec user a command is refused, never run as root.
//! **Invariant:** no record holds a secret.
//! **Invariant:** a container that was ready is removed by [`destroy`] alone, which saves what only it has, unless somebody
//! who may says otherwise.

#![warn(missing_docs)]

mod adopt;
mod clock;
mod compose_stack;
mod copy;
mod create;
mod default_network;
mod destroy;
mod enter;
mod error;
mod exec;
mod find;
mod guest;
mod health;
mod host_review;
mod lease;
mod list;
mod lock;
mod managed_container;
mod networks;
mod packages;
mod protected_paths;
mod prune;
mod reap;
mod reconcile;
mod record;
mod record_cache;
mod remove;
mod restart;
mod save;
mod session_container;
mod shared_mounts;
mod slot;
mod store;
mod tombstones;
mod volume;

pub use adopt::adopt;
pub use clock::ClockReading;
pub use compose_stack::StackPart;
pub use copy::{Copied, CopyAmount, CopyLimits, CopyMeter, CopyRequest, copy_in, copy_in_by, copy_out, copy_out_by};
pub use create::{Creation, NewRecord, begin, fresh_name};
pub use destroy::{Destroyed, RemoveOptions, SavePolicy, destroy};
pub use enter::enter;
pub use error::{Error, Kind, Result, StoreError};
pub use exec::{Hint, OnTerminal, Session, guest_shell, guided_session, hint, may_be_root, on_terminal, session};
pub use find::{Engines, at_hand, find};
pub use guest::{GuestProgram, Links};
pub use health::{Check, Patience, Probe, Tried, Waited, wait_healthy};
pub use host_review::{Change, Finding, Review, compared, read_only_paths};
pub use lease::{LeaseTerms, expires_at};
pub(crate) use list::asked;
pub use list::{Listed, Listing, list, list_recent};
pub use lock::Lock;
pub use managed_container::ManagedContainer;
pub use networks::{
    NewNetwork, OwnNetwork, SlotNetwork, create_network, destroy_network, drop_networks, ensure_slot_network,
    find_network, find_slot_network, networks,
};
pub use packages::{SharedPackage, SharedPackages};
pub use protected_paths::DEFAULT_PROTECTED;
pub use prune::{Prune, PruneKind, Thing, prunable, prune};
pub use reap::reap;
pub use reconcile::reconcile;
pub use record::{
    GuestRecord, Lease, MadeFrom, MainProgram, OwnVolume, Record, RecordedJob, RecordedMount, Role, SecretState, State,
    Watched,
};
pub use restart::restart;
pub use save::{
    Bundle, Commits, Item, LeftOut, Manifest, Names, Omission, Part, Restored, SAVE_TIME, SAVED_REFS, Save, SaveLimits,
    Saved, SavedKind, Target, What,
};
pub use session_container::{
    BoxError, ContainerEvent, ContainerTemplate, EndOptions, EndReason, EndedSession, EnsureRequest, Ready, Reason,
    Recreated, SessionContainers, SlotError, SlotEvent, SlotInfo, SlotLimits, SlotObserver, VolumeInit,
    VolumeInitFuture,
};
pub use slot::{SlotId, SlotRole};
pub use store::Store;
