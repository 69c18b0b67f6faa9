//! How commands run in a container: by its guest, or by the engine's own exec.

use std::sync::Arc;

use crate::link::Link;
use crate::{AtLimit, Capability, ContainerId, ContainerRuntime, Error, Exec, ExecOutput, Result};

/// A container that commands run in.
#[derive(Clone, Debug)]
pub enum Inside {
    /// It has a guest.
    Guest(Link),
    /// It has none.
    Plain(Arc<dyn ContainerRuntime>, ContainerId),
}

impl Inside {
    /// Runs a command and waits for it, as [`Link::exec`] or [`ContainerRuntime::exec`].
    ///
    /// # Errors
    /// Those of the two; [`Error::Unsupported`] for what takes a guest.
    pub async fn exec(&self, exec: Exec) -> Result<ExecOutput> {
        match self {
            Self::Guest(link) => link.exec(exec).await,
            Self::Plain(runtime, _) if exec.at_limit == AtLimit::Keep || exec.bare || exec.secret.is_some() => {
                Err(no_guest(&**runtime))
            }
            Self::Plain(runtime, id) => runtime.exec(id, exec).await,
        }
    }

    /// The link to its guest.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when it has none.
    pub fn link(&self) -> Result<&Link> {
        match self {
            Self::Guest(link) => Ok(link),
            Self::Plain(runtime, _) => Err(no_guest(&**runtime)),
        }
    }
}

fn no_guest(runtime: &dyn ContainerRuntime) -> Error {
    Error::Unsupported { engine: runtime.kind(), capability: Capability::Guest }
}
