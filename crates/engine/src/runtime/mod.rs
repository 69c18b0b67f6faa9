//! Implements `coracle-runtime`'s traits for the engine. Each method calls the module that does the work.

mod checkpoints;
mod containers;
mod copy;
mod export;
mod images;
mod link;
mod networks;
mod stacks;
#[cfg(test)]
mod tests;
mod verification;
mod volumes;

use std::sync::Arc;

pub use self::copy::ImageOrigin;
pub use self::verification::{ImageDamage, ImageVerification};
use coracle_host::find_program::find_program;
use coracle_types::Result;

use crate::engine::Engine;
use crate::oci_runtime::OciRuntime;
use crate::options::EngineOptions;
use crate::repair;

/// The embedded engine. Clones share one engine.
#[derive(Clone, Debug)]
pub struct EmbeddedRuntime {
    engine: Arc<Engine>,
}

impl EmbeddedRuntime {
    /// Opens an engine, creates its data directory if it is missing, and cleans up after killed processes.
    ///
    /// # Errors
    /// [`coracle_types::Error::Host`] if the data directory cannot be created.
    pub fn open(options: EngineOptions) -> Result<Self> {
        Self::open_with_runtime(options, None)
    }

    /// Like [`open`](Self::open), and creates new containers with an OCI runtime. Existing containers continue to use theirs.
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and [`Error::NotInstalled`] if the runtime's program is missing.
    ///
    /// [`Error::NotInstalled`]: coracle_types::Error::NotInstalled
    pub fn open_with_runtime(options: EngineOptions, runtime: Option<OciRuntime>) -> Result<Self> {
        if let Some(runtime) = runtime {
            find_program(runtime.program())?;
        }
        let engine = Arc::new(Engine { runtime, ..Engine::open(options)? });
        repair::repair_at_opening(&engine)?;
        Ok(Self { engine })
    }
}

impl EmbeddedRuntime {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
