//! Managed containers: those that are provably Coracle's.

use std::sync::Arc;

use coracle_runtime::{Container, ContainerRuntime};

use crate::record::Record;
use crate::{Error, ResourceKind, Result};

/// A managed container, which may have been removed from the engine.
#[derive(Debug)]
pub struct ManagedContainer {
    /// Its engine.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// What we remember. Its exec user is that of the signed label, if there is one.
    pub record: Record,
    /// What the engine knows; missing when it is gone.
    pub container: Option<Container>,
}

impl ManagedContainer {
    /// The container, which must be there.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn present(&self) -> Result<&Container> {
        let name = || self.record.name.to_string();
        self.container.as_ref().ok_or_else(|| Error::NotFound {
            kind: ResourceKind::Container,
            name: name(),
            near: Vec::new(),
        })
    }
}
