//! Creates, records, finds and removes containers.
//!
//! A [`Record`] is one file in the [`Store`] that describes one container. [`Creation`] is the transaction that creates
//! a container: it ends with a ready record, or undoes all of its steps. [`find`] resolves a name or id to a
//! [`ManagedContainer`]. [`destroy`] saves unsaved work, then removes the container and everything that only it used.
//! [`SessionContainers`] holds the containers that a session gets without a request, one [slot](SlotRole) each.
//!
//! ```
//! use std::time::Duration;
//!
//! use coracle_client::LinkSettings;
//! use coracle_lifecycle::{Creation, Links, NewRecord, RemoveOptions, SavePolicy, Store, destroy};
//! use coracle_runtime::{CreateSpec, FakeRuntime, Policy, admit, fake::LOCAL_IMAGE, find_or_pull};
//! use coracle_types::{ContainerName, ContainerPath, ImageRef, LabelNamespace};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let state = tempfile::tempdir()?;
//!     let store = Store::open(state.path(), LabelNamespace::parse("example")?)?;
//!     let engine = FakeRuntime::new(); // or any other engine
//!     let (name, image) = (ContainerName::parse("web")?, ImageRef::parse(LOCAL_IMAGE)?);
//!     let found = find_or_pull(&engine, &image, Duration::from_secs(300)).await?;
//!     let admitted = admit(CreateSpec::new(name.clone(), image), &Policy::permissive("/home/me".into()))?;
//!
//!     let record = NewRecord::new(name, "my session", ContainerPath::parse("/workspace")?);
//!     let mut creation = Creation::begin(&engine, &store, record).await?;
//!     if let Err(err) = creation.create_container(admitted, &found, LOCAL_IMAGE, None).await {
//!         creation.undo().await;
//!         return Err(err.into());
//!     }
//!     let record = creation.ready(Default::default(), Default::default())?;
//!     drop(creation); // it holds the container's lock
//!     let (links, grace) = (Links::new(LinkSettings::default()), Duration::from_secs(2));
//!     let options = RemoveOptions { links: &links, saving: SavePolicy::Discard, grace, adopted_too: false };
//!     assert!(!destroy(&engine, &store, &record, &options).await?.already_gone);
//!     Ok(())
//! }
//! ```
//!
//! **Invariant:** only managed containers are changed: a record has the full id that the engine reports, or the labels
//! carry a valid signature.
//! **Invariant:** the intent to create a container is on disk before the engine is called, so the next process finds
//! and removes what a killed process left.
//! **Invariant:** a command without a known exec user is refused, never run as root.
//! **Invariant:** no record holds a secret.
//! **Invariant:** only [`destroy`] removes a container that was ready. It saves unsaved work first, unless an
//! authorised caller discards it.

#![warn(missing_docs)]

mod adopt;
mod clock;
mod compose_stack;
mod copy;
mod create;
mod deferred;
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
mod managed_container;
mod network_hold;
mod networks;
mod packages;
mod protected_paths;
mod proxy_process;
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
mod stack_files;
mod store;
mod tombstones;
mod volume;

pub use adopt::adopt;
pub use clock::ClockReading;
pub use compose_stack::{StackLabels, StackPart};
pub use copy::{
    AbandonedCopy, CopyAmount, CopyLimits, CopyMeter, CopyReport, CopyRequest, HostFile, HostFileRules,
    abandoned_copies, copy_in, copy_out,
};
pub use coracle_host::lock::Lock;
pub use create::{CopiedContainer, Creation, NewRecord, fresh_name};
pub use destroy::{DestroyReport, RemoveOptions, SavePolicy, destroy};
pub use enter::{enter, open_link};
pub use error::{Error, ResourceKind, Result, SaveObstacle, StoreError};
pub use exec::{
    ExecContext, Hint, OnTerminal, exec_on_terminal, guest_shell, guided_session, hint, may_be_root, on_terminal,
    session,
};
pub use find::{Engines, find, find_linked};
pub use guest::{GuestProgram, Links};
pub use health::{Check, HealthReport, Probe, ProbeOutcome, RetryPolicy, wait_healthy};
pub use host_review::{Change, Finding, Review, compared, read_only_paths};
pub use lease::{LeaseTerms, expires_at};
pub(crate) use list::recorded_engines;
pub use list::{ContainerEntry, ContainerList, list, list_recent};
pub use managed_container::ManagedContainer;
pub use networks::{
    NetworkOwner, NewNetwork, OwnNetwork, create_network, destroy_network, drop_networks, find_network, networks,
    release_network, slot_networks,
};
pub use packages::{SharedPackage, SharedPackages};
pub use protected_paths::{GUARDED, Guard, GuardedPath, Placeholder, default_protected};
pub use proxy_process::ProxyProcess;
pub use prune::{Prune, PruneItem, PruneKind, PruneScope, prunable};
pub use reap::reap;
pub use reconcile::reconcile;
pub use record::{
    BadRecord, GuestRecord, Lease, MadeFrom, MainProgram, OwnVolume, PathFingerprint, Record, RecordState, RecordedJob,
    RecordedMount, Role, SecretState, summed_bytes, summed_value,
};
pub use restart::restart;
pub use save::{
    ArchiveWriter, Bundle, Commits, GitPlace, NameList, Omission, Omissions, OutputReceiver, PartKind, RepoStatus,
    RestoreTarget, RestoredItem, SAVE_TIME, SAVED_REFS, STAGING_PREFIX, Save, SaveDestination, SaveError, SaveLimits,
    SaveManifest, SaveReport, SaveWriter, SavedItem, SavedKind, SavedPart, is_object_id, stream_stdout,
};
pub use session_container::{
    BoxError, ContainerEvent, ContainerTemplate, EndOptions, EndReason, EndedSession, EnsureRequest, Ready, Reason,
    Replacement, SessionContainers, SlotError, SlotEvent, SlotInfo, SlotLimits, SlotObserver, VolumeInit,
    VolumeInitFuture,
};
pub use slot::{SlotId, SlotKey, SlotRole};
pub use store::Store;
