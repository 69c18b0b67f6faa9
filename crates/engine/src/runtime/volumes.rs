//! Volumes.

use async_trait::async_trait;
use coracle_runtime::{LabelFilter, Volume, VolumeCreate, Volumes};
use coracle_types::Result;

use super::EmbeddedRuntime;
use crate::blocking::blocking;
use crate::container::lock_names;
use crate::volume::VolumeRecords;

#[async_trait]
impl Volumes for EmbeddedRuntime {
    async fn list_volumes(&self, filter: &LabelFilter) -> Result<Vec<Volume>> {
        let mut volumes = VolumeRecords::new(&self.engine.directories, &self.engine.privileges).list()?;
        volumes.retain(|it| filter.admits(&it.labels));
        Ok(volumes)
    }

    async fn create_volume(&self, volume: &VolumeCreate) -> Result<Volume> {
        let (engine, volume) = (self.engine.clone(), volume.clone());
        blocking("create a volume", move || VolumeRecords::new(&engine.directories, &engine.privileges).create(&volume))
            .await
    }

    async fn remove_volume(&self, name: &str) -> Result<()> {
        // Holds the lock of names, so that no container with this volume is created meanwhile.
        let _names = lock_names(&self.engine, "volume rm").await?;
        let (engine, name) = (self.engine.clone(), name.to_owned());
        blocking("remove a volume", move || VolumeRecords::new(&engine.directories, &engine.privileges).remove(&name))
            .await
    }
}
