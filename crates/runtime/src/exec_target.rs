//! Runs commands in a container: through its guest, or through the engine's own exec.

use std::sync::Arc;

use coracle_client::Link;
use coracle_types::{Capability, ContainerId, Error, Exec, ExecOutput, Result};

use crate::ContainerRuntime;

/// A container to run commands in.
#[derive(Clone, Debug)]
pub enum ExecTarget {
    /// The link to its guest.
    Guest(Link),
    /// A container without a guest.
    Plain(Arc<dyn ContainerRuntime>, ContainerId),
}

impl ExecTarget {
    /// Runs a command and waits for its exit, as [`Link::exec`] or [`ContainerRuntime::exec`].
    ///
    /// # Errors
    /// Those of the two; [`Error::Unsupported`] for options that need a guest.
    pub async fn exec(&self, exec: Exec) -> Result<ExecOutput> {
        match self {
            Self::Guest(link) => link.exec(exec).await,
            Self::Plain(runtime, id) => {
                exec.check_without_guest(runtime.kind())?;
                runtime.exec(id, exec).await
            }
        }
    }

    /// Returns the link to its guest.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without a guest.
    pub fn link(&self) -> Result<&Link> {
        match self {
            Self::Guest(link) => Ok(link),
            Self::Plain(runtime, _) => {
                Err(Error::Unsupported { engine: runtime.kind(), capability: Capability::Guest })
            }
        }
    }
}
