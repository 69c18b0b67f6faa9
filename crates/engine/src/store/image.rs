//! Images: `images/<digits of the id>/{config.json,image.json}`.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use coracle_archive::oci::Configuration;
use coracle_runtime::Image;
use coracle_types::{ContainerPath, ImageId, ImageRef};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::layer::read_json;
use super::{Result, Store, StoreError};

/// The record of an image, in addition to its configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ImageRecord {
    /// `repository@sha256:…` of the manifests that it was pulled by.
    pub(super) repo_digests: BTreeSet<String>,
    /// Whether it is garbage as soon as it has no name and no user.
    pub(super) intermediate: bool,
    /// When it was added (RFC 3339).
    pub(super) added: String,
    pub(super) size_bytes: u64,
    /// Fields of a later version.
    #[serde(flatten)]
    pub(super) later: Map<String, Value>,
}

/// Name of the configuration in an image's directory.
pub(super) const CONFIGURATION: &str = "config.json";
/// Name of its record.
pub(super) const RECORD: &str = "image.json";

impl Store {
    pub(super) fn images(&self) -> PathBuf {
        self.dir.join("images")
    }

    pub(super) fn image_dir(&self, id: &ImageId) -> PathBuf {
        self.images().join(&id.as_str()["sha256:".len()..])
    }

    /// The ids of all images.
    pub(super) fn image_ids(&self) -> io::Result<Vec<ImageId>> {
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(self.images())? {
            let name = entry?.file_name();
            ids.extend(name.to_str().and_then(|it| ImageId::parse(format!("sha256:{it}")).ok()));
        }
        ids.sort();
        Ok(ids)
    }

    /// Returns the exact bytes of the image's OCI configuration, for the fields that [`Image`] lacks.
    pub(crate) fn configuration(&self, id: &ImageId) -> Result<Option<Vec<u8>>> {
        match std::fs::read(self.image_dir(id).join(CONFIGURATION)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(StoreError::Io { what: "cannot read an image's configuration", source: err }),
        }
    }

    pub(super) fn image_record(&self, id: &ImageId) -> io::Result<Option<ImageRecord>> {
        read_json(&self.image_dir(id).join(RECORD))
    }

    /// Returns the image of that id with these names. `None` if it was removed.
    pub(super) fn describe(&self, id: &ImageId, names: &[ImageRef]) -> Result<Option<Image>> {
        let record = self.image_record(id).map_err(StoreError::io("cannot read an image's record"))?;
        let (Some(bytes), Some(record)) = (self.configuration(id)?, record) else { return Ok(None) };
        let mut image = Image::from_configuration(id.clone(), Configuration::parse(&bytes)?);
        image.tags = names.iter().map(ToString::to_string).collect();
        image.digest =
            record.repo_digests.first().and_then(|it| it.split_once('@')).map(|(_, digest)| digest.to_owned());
        // An image may contain any text here. Invalid paths are omitted, since they cannot be mounted.
        image.volumes = image.volumes.iter().filter_map(|path| container_path(path)).collect();
        image.size_bytes = record.size_bytes;
        if image.created.is_empty() {
            image.created = record.added;
        }
        Ok(Some(image))
    }
}

/// Normalizes a path inside a container. `None` if it is relative or contains `..`.
fn container_path(text: &str) -> Option<String> {
    ContainerPath::parse(text).ok().map(Into::into)
}
