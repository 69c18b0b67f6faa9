//! What keeps images alive, what collects the rest, and what finds damage.

use std::path::PathBuf;

use coracle_runtime::ImageId;

use super::{DiffId, Result, Store};

/// An image that a container is being made of: neither it nor its layers are removed until this is dropped. Drop it when
/// the container's record, which names the image, is in place: the store reads `containers/*/config.json` itself.
#[derive(Debug)]
pub(crate) struct LayerHold {
    /// Its unpacked layers, topmost first.
    pub(crate) layers: Vec<PathBuf>,
}

/// What a collection removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GarbageReport {
    pub(crate) images: Vec<ImageId>,
    pub(crate) layers: Vec<DiffId>,
    /// Directories of makers that died.
    pub(crate) temporary: u64,
    pub(crate) bytes: u64,
}

/// What a verification found: lines for people, by object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DamageReport {
    pub(crate) checked_layers: u64,
    pub(crate) checked_images: u64,
    pub(crate) damage: Vec<Damage>,
}

/// A damaged layer, image or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) object: String,
    pub(crate) what: String,
}

impl Store {
    /// Keeps an image and its layers. `None` for an unknown image.
    pub(crate) fn hold(&self, _image: &ImageId) -> Result<Option<LayerHold>> {
        Ok(None)
    }

    /// Removes what nothing needs: layers without an image, intermediate images without a name or a user, leftovers of
    /// dead processes.
    pub(crate) fn collect_garbage(&self) -> Result<GarbageReport> {
        Ok(GarbageReport::default())
    }

    /// Looks for half or damaged layers and images; `deep` reads all content.
    pub(crate) fn verify(&self, _deep: bool) -> Result<DamageReport> {
        Ok(DamageReport::default())
    }
}
