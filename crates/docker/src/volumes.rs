//! Volumes of Docker and Podman.

use async_trait::async_trait;
use coracle_runtime::{LabelFilter, Volume, VolumeCreate, Volumes};
use coracle_types::{Error, Result};

use super::{CliRuntime, args, deadline};

#[async_trait]
impl Volumes for CliRuntime {
    async fn list_volumes(&self, filter: &LabelFilter) -> Result<Vec<Volume>> {
        self.lookup.list_volumes(filter).await
    }

    /// The driver that every engine has knows no sizes.
    async fn create_volume(&self, volume: &VolumeCreate) -> Result<Volume> {
        let words = args::create_volume(&volume.name, &volume.labels);
        let created = self.client.query("volume create", words, deadline::NETWORK).await;
        // Podman fails for one that exists.
        match self.lookup.find_volumes(&[volume.name.to_string()]).await?.pop() {
            Some(volume) => Ok(volume),
            None => {
                created?;
                Err(Error::Unreadable { verb: "volume create", detail: "no volume".into() })
            }
        }
    }

    async fn remove_volume(&self, name: &str) -> Result<()> {
        let removed = self.client.query("volume rm", args::on("volume rm", [name]), deadline::REMOVE).await;
        match removed {
            Err(failure) if !self.lookup.find_volumes(&[name.to_owned()]).await?.is_empty() => Err(failure),
            _ => Ok(()),
        }
    }
}
