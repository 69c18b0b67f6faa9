//! The containers of a session, as a workspace requests them.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_runtime::link::Link;
use coracle_runtime::{ByteSize, ContainerPath, Ids};
use serde::{Deserialize, Serialize};

use crate::{Failure, Reason, Recreated, Warning};

/// The purpose of a session's container. A run that is ended must not cost the agent its workspace, so there are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// File tools, shell, Python.
    Workspace,
    /// Snippets.
    Run,
}

impl Role {
    /// The word in records and labels.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Run => "run",
        }
    }
}

/// Provides a session's containers: creates them on first use, reuses them, and replaces those that are gone.
#[async_trait]
pub trait Sessions: fmt::Debug + Send + Sync {
    /// The container of a role, ready for use.
    ///
    /// # Errors
    /// The reason why the container cannot be created.
    async fn ensure(&self, role: Role) -> Result<Session, Box<Failure>>;

    /// The link to the running container of a role. Creates none.
    async fn held(&self, role: Role) -> Option<Link>;

    /// Notes that the container is in use.
    async fn touch(&self, role: Role);

    /// Removes the container and keeps its volume and record. The next [`ensure`](Self::ensure) creates another.
    ///
    /// # Errors
    /// The engine could not remove it.
    async fn discard(&self, role: Role, reason: Reason) -> Result<(), Box<Failure>>;
}

/// A container that is ready for requests.
#[derive(Clone, Debug)]
pub struct Session {
    /// The connection to its guest.
    pub link: Link,
    /// The session's name.
    pub session_id: String,
    /// From 1, one more for each replacement.
    pub generation: u64,
    /// The user of its commands.
    pub user: Ids,
    /// The directory of its commands.
    pub workdir: ContainerPath,
    /// The environment of every command.
    pub env: BTreeMap<String, String>,
    /// The memory limit of the container.
    pub memory: ByteSize,
    /// The host directory that is bound read-only at `/code`; without one, PID 1 writes there.
    pub code: Option<PathBuf>,
    /// Set if it replaced another container and no response has reported that yet.
    pub replaced: Option<Recreated>,
    /// Warnings for the next response.
    pub warnings: Vec<Warning>,
    /// Keeps the container in use until it is dropped.
    pub in_use: Arc<dyn Any + Send + Sync>,
}
