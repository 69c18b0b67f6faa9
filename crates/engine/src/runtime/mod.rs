//! The engine as `coracle-runtime`'s traits: each method translates and calls the module that does the work.

mod containers;
mod copy;
mod export;
mod images;
mod link;
mod networks;
mod stacks;
mod verification;
mod volumes;

use std::sync::Arc;

pub use self::copy::ImageOrigin;
pub use self::verification::{ImageDamage, ImageVerification};
use coracle_runtime::Result;

use crate::engine::Engine;
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
    /// [`coracle_runtime::Error::Host`] when the data directory cannot be made.
    pub fn open(options: EngineOptions) -> Result<Self> {
        let engine = Arc::new(Engine::open(options)?);
        repair::repair_at_opening(&engine)?;
        Ok(Self { engine })
    }
}

impl EmbeddedRuntime {
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}
