//! Volumes.

use std::collections::BTreeMap;

use coracle_runtime::Volume;
use coracle_types::Result;
use serde::Deserialize;

use super::{array, one};
use crate::Dialect;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VolumeJson {
    name: String,
    #[serde(default)]
    created_at: String,
    labels: Option<BTreeMap<String, String>>,
}

impl VolumeJson {
    fn read(self) -> Volume {
        Volume { name: self.name, labels: self.labels.unwrap_or_default(), created: self.created_at }
    }
}

pub(crate) fn volumes(json: &[u8]) -> Result<Vec<Volume>> {
    Ok(array::<VolumeJson>("volume inspect", json)?.into_iter().map(VolumeJson::read).collect())
}

/// Volumes of a list that the API gave.
pub(crate) fn listed_volumes(dialect: Dialect, json: &[u8]) -> Result<Vec<Volume>> {
    #[derive(Deserialize)]
    struct DockerList {
        #[serde(rename = "Volumes")]
        volumes: Option<Vec<VolumeJson>>,
    }
    if dialect == Dialect::Podman {
        return volumes(json);
    }
    let listed = one::<DockerList>("volume ls", json)?.volumes.unwrap_or_default();
    Ok(listed.into_iter().map(VolumeJson::read).collect())
}
