//! The request for a slot, the template of its container, and the ready slot.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;

use coracle_client::Link;
use coracle_runtime::{CreateSpec, Image, Policy};
use coracle_types::{ByteSize, ContainerName, ContainerPath, Ids, ProcessId};

use super::{BoxError, Replacement, SlotInfo, SlotObserver, SlotUse};
use crate::GuestProgram;
use crate::slot::{SlotKey, SlotRole};

/// Who wants which slot.
#[derive(Clone, Copy)]
pub struct EnsureRequest<'a> {
    /// The session.
    pub session: &'a ContainerName,
    /// Which of its slots.
    pub role: SlotRole,
    /// A digest of the user's settings for it: a container with another digest is replaced.
    pub spec_hash: &'a str,
    /// Who runs commands in it.
    pub user: Ids,
    /// No process in it is root, and PID 1 runs as that user. Any other container is replaced, even while it is in use.
    pub rootless: bool,
    /// The process whose end is the end of the session, if there is one.
    pub owner: Option<&'a ProcessId>,
    /// Hears of what is done.
    pub observer: &'a SlotObserver<'a>,
}

impl<'a> EnsureRequest<'a> {
    pub(super) fn key(&self) -> SlotKey<'a> {
        SlotKey::new(self.session, self.role)
    }
}

impl fmt::Debug for EnsureRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnsureRequest")
            .field("session", &self.session)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// What a slot's container is made of.
#[derive(Debug)]
pub struct ContainerTemplate {
    /// All but its name and the volume, which are the slot's.
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
    /// Puts something into a volume that is new, before anybody gets the slot.
    pub fill: Option<VolumeInit>,
    /// Names that lie read-only over its writable binds.
    pub protected: Vec<String>,
    /// At most this many containers altogether.
    pub max_containers_total: usize,
    /// Version of the tool.
    pub tool_version: String,
}

impl ContainerTemplate {
    /// Who runs commands in it.
    pub(super) fn user(&self) -> Ids {
        self.spec.exec_user
    }
}

/// The filling of a volume, under way.
pub type VolumeInitFuture = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// Fills a volume.
pub struct VolumeInit(pub Box<dyn FnOnce(Link) -> VolumeInitFuture + Send>);

impl fmt::Debug for VolumeInit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VolumeInit")
    }
}

/// A slot that can be used. It counts as in use as long as this is held.
#[derive(Debug)]
pub struct Ready {
    /// The connection to its guest.
    pub link: Link,
    /// What is remembered of it.
    pub slot: SlotInfo,
    /// A replacement that was not reported yet.
    pub replacement: Option<Replacement>,
    /// Its container was made by this call.
    pub made: bool,
    /// It is as an earlier caller wanted it, and stays so while it is in use.
    pub spec_pending: bool,
    pub(super) _using: SlotUse,
}
