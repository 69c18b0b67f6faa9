//! The engine as `coracle-runtime`'s traits: each method translates and calls the module that does the work.

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

/// The embedded engine. Clones are handles to the same engine.
#[derive(Clone, Debug)]
pub struct EmbeddedRuntime {
    engine: Arc<Engine>,
}

impl EmbeddedRuntime {
    /// Opens an engine, creates its data directory if it is missing, and repairs what killed processes left.
    ///
    /// # Errors
    /// [`coracle_types::Error::Host`] when the data directory cannot be made.
    pub fn open(options: EngineOptions) -> Result<Self> {
        Self::open_with_runtime(options, None)
    }

    /// The same; new containers are made by that runtime. Those that exist keep theirs.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::NotInstalled`] without its program.
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
