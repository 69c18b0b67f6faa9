//! The containers of a session, as a workspace asks for them.

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

/// What a container of a session is for. Ending a run must not cost the agent its workspace, so there are two.
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

/// Gives a session its containers: made when first asked for, used again, made anew when one is gone.
#[async_trait]
pub trait Sessions: fmt::Debug + Send + Sync {
    /// The container of a role, ready for use.
    ///
    /// # Errors
    /// Why there is none, in the words of whoever makes containers.
    async fn ensure(&self, role: Role) -> Result<Session, Box<Failure>>;

    /// The way into the container of a role that is there. Makes none.
    async fn held(&self, role: Role) -> Option<Link>;

    /// A call began or ended: it is in use.
    async fn touch(&self, role: Role);

    /// Takes the container away, its volume and record stay. The next [`ensure`](Self::ensure) makes another.
    ///
    /// # Errors
    /// It could not be removed.
    async fn discard(&self, role: Role, reason: Reason) -> Result<(), Box<Failure>>;
}

/// A container that is ready.
#[derive(Clone, Debug)]
pub struct Session {
    /// The way in.
    pub link: Link,
    /// Whose it is.
    pub session_id: String,
    /// From 1, one more for each replacement.
    pub generation: u64,
    /// Who works in it.
    pub user: Ids,
    /// Where.
    pub workdir: ContainerPath,
    /// What every command finds in its environment.
    pub env: BTreeMap<String, String>,
    /// What all of it may use.
    pub memory: ByteSize,
    /// The directory of this host that it sees as `/code`, and cannot write; where there is none, its PID 1 writes there.
    pub code: Option<PathBuf>,
    /// This replaced another, and nobody was told yet. Whoever gets it tells.
    pub replaced: Option<Recreated>,
    /// What else there is to tell with the next result.
    pub warnings: Vec<Warning>,
    /// As long as this is held, somebody is in it.
    pub in_use: Arc<dyn Any + Send + Sync>,
}
