//! What configuration and host decide about a session's containers.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_client::Link;
use coracle_lifecycle::{ContainerTemplate, Engines, SessionContainers, SlotError, SlotObserver, Store};
use coracle_types::{ByteSize, ContainerId, ContainerName, Ids, ProcessId, SlotRole};

use crate::{Failure, Warning};

/// Decides what a session's containers are made of. A container that is ready is used without it, unless it has a proxy.
#[async_trait]
pub trait ContainerProvider: fmt::Debug + Send + Sync {
    /// What a new container is made of, with its image on the engine, and warnings for the next response.
    ///
    /// # Errors
    /// Why there can be no container.
    async fn template(&self, role: SlotRole) -> Result<(ContainerTemplate, Vec<Warning>), Failure>;

    /// Opens the proxy of a container, and proves that the container has no other way out. One that has is discarded.
    ///
    /// # Errors
    /// Why it cannot be opened, or is not proven.
    async fn attach_proxy(&self, role: SlotRole, link: &Link, id: &ContainerId) -> Result<(), Failure>;

    /// The failure for an error of `lifecycle`.
    fn failure(&self, err: SlotError) -> Failure;
}

/// Whose containers they are, and how they are reached.
pub struct ManagedOptions {
    /// The session.
    pub session: ContainerName,
    /// The containers of all sessions.
    pub slots: SessionContainers,
    /// Has the packages that snippets share.
    pub store: Store,
    /// The engines.
    pub engines: Arc<dyn Engines>,
    /// Is notified of each event of a container.
    pub observer: Arc<SlotObserver<'static>>,
    /// The process whose end is the end of the session, if there is one.
    pub owner: Option<ProcessId>,
    /// The container of files and commands.
    pub workspace: RoleSettings,
    /// The container of snippets.
    pub run: RoleSettings,
}

impl fmt::Debug for ManagedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManagedOptions").field("session", &self.session).finish_non_exhaustive()
    }
}

/// The container of a role, as it is configured.
#[derive(Clone, Debug)]
pub struct RoleSettings {
    /// A digest of the settings: a container of other settings is replaced.
    pub spec_hash: String,
    /// The user of commands.
    pub user: Ids,
    /// No process inside is root.
    pub rootless: bool,
    /// The memory limit.
    pub memory: ByteSize,
    /// Its network is a proxy.
    pub has_proxy: bool,
    /// Where the host writes snippets, if no user inside is root.
    pub code: Option<PathBuf>,
}
