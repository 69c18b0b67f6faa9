//! The engine as `coracle-runtime`'s traits: each method translates and calls the module that does the work.

mod containers;
mod copy;
mod images;
mod networks;
mod stacks;
mod volumes;

use std::sync::Arc;

pub use copy::ImageOrigin;
use coracle_runtime::{Capability, EngineKind, Error, Result};

use crate::directories::Directories;
use crate::ids::Privileges;
use crate::options::EngineOptions;
use crate::store::Store;

/// The embedded engine. Clones are handles to the same engine.
#[derive(Clone, Debug)]
pub struct EmbeddedRuntime {
    engine: Arc<Engine>,
}

/// One data directory, and what this process may do with it.
#[derive(Debug)]
#[expect(dead_code, reason = "the skeleton")]
pub(crate) struct Engine {
    pub(crate) options: EngineOptions,
    pub(crate) directories: Directories,
    pub(crate) privileges: Privileges,
    pub(crate) store: Store,
}

impl EmbeddedRuntime {
    /// Opens an engine, and creates its data directory if it is missing.
    ///
    /// # Errors
    /// [`Error::Host`] when the data directory cannot be made.
    pub fn open(options: EngineOptions) -> Result<Self> {
        let what = || format!("cannot open the engine's data in `{}`", options.data_dir.display());
        let failed = |source| Error::Host { what: what(), source };
        let directories = Directories::open(&options.data_dir).map_err(failed)?;
        let privileges = Privileges::Root;
        let store = Store::open(&directories, privileges.clone()).map_err(failed)?;
        Ok(Self { engine: Arc::new(Engine { options, directories, privileges, store }) })
    }
}

pub(crate) fn unsupported(capability: Capability) -> Error {
    Error::Unsupported { engine: EngineKind::Embedded, capability }
}
