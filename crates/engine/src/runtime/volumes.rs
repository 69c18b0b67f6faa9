//! Volumes.

use async_trait::async_trait;
use coracle_runtime::{Capability, LabelFilter, Result, Volume, VolumeCreate, Volumes};

use super::{EmbeddedRuntime, unsupported};

#[async_trait]
impl Volumes for EmbeddedRuntime {
    async fn list_volumes(&self, _filter: &LabelFilter) -> Result<Vec<Volume>> {
        Ok(Vec::new())
    }

    async fn create_volume(&self, _volume: &VolumeCreate) -> Result<Volume> {
        Err(unsupported(Capability::Compose))
    }

    async fn remove_volume(&self, _name: &str) -> Result<()> {
        Ok(())
    }
}
