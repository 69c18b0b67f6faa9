//! Named volumes of an engine.

use std::collections::BTreeMap;

use async_trait::async_trait;
use coracle_types::{ByteSize, Result, VolumeName};

use crate::LabelFilter;

/// The named volumes of an engine. Compose creates those of a stack.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Volumes that carry all of these labels.
    async fn list_volumes(&self, filter: &LabelFilter) -> Result<Vec<Volume>>;

    /// Creates an empty volume. If one with that name exists, it succeeds, and labels and files do not change.
    async fn create_volume(&self, volume: &VolumeCreate) -> Result<Volume>;

    /// Removes a volume by name. A missing one is no error.
    async fn remove_volume(&self, name: &str) -> Result<()>;
}

/// A volume to be created.
#[derive(Clone, Debug)]
pub struct VolumeCreate {
    /// Its name.
    pub name: VolumeName,
    /// Labels of the volume.
    pub labels: Vec<(String, String)>,
    /// Its capacity, where the engine can limit it.
    pub size: Option<ByteSize>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name, which is its id.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The time of its creation.
    pub created: String,
}
