//! Finds, lists, tags and holds images.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use coracle_archive::oci::Configuration;
use coracle_runtime::{Image, LabelFilter};
use coracle_types::{ImageId, ImageRef};

use super::hold::Hold;
use super::layer::FILES;
use super::{DiffId, Result, Store, StoreError};

/// A hold of the image from which a container is being created: neither the image nor its layers are removed until this is
/// dropped. Drop it once the container's record names the image: removal and collection read `containers/*/config.json`.
#[derive(Debug)]
pub(crate) struct LayerHold {
    _hold: Hold,
}

impl Store {
    /// Returns the image with an id.
    pub(crate) fn image(&self, id: &ImageId) -> Result<Option<Image>> {
        let names = self.names_by_image()?;
        self.describe(id, names.get(id).map_or(&[], Vec::as_slice))
    }

    /// Returns the images of these names or ids, in their order. Missing images are omitted.
    pub(crate) fn find(&self, names: &[ImageRef]) -> Result<Vec<Image>> {
        let mut found = Vec::new();
        let all = if names.is_empty() { BTreeMap::new() } else { self.names_by_image()? };
        for name in names {
            if let Some(id) = self.resolve(name)? {
                found.extend(self.describe(&id, all.get(&id).map_or(&[], Vec::as_slice))?);
            }
        }
        Ok(found)
    }

    /// Resolves a name, an id or a digest.
    fn resolve(&self, name: &ImageRef) -> Result<Option<ImageId>> {
        if let Ok(id) = ImageId::parse(name.as_str()) {
            return Ok(Some(id));
        }
        if name.as_str().contains('@') {
            return self.resolve_digest(name);
        }
        let failed = StoreError::io("cannot read the names of images");
        self.target_of(name).map(|it| it.map(|it| it.1)).map_err(failed)
    }

    /// Returns the name that leads to an image, and the image. A name without a registry is one of Docker Hub or a local one.
    pub(super) fn target_of(&self, name: &ImageRef) -> std::io::Result<Option<(ImageRef, ImageId)>> {
        let local = name.registry().is_none().then(|| ImageRef::parse(format!("localhost/{name}")).ok()).flatten();
        for candidate in std::iter::once(name.clone()).chain(local) {
            if let Some(id) = self.name_target(&candidate)? {
                return Ok(Some((candidate.completed(), id)));
            }
        }
        Ok(None)
    }

    fn resolve_digest(&self, name: &ImageRef) -> Result<Option<ImageId>> {
        let failed = || StoreError::io("cannot read the images");
        let wanted = repo_digest(name);
        for id in self.image_ids().map_err(failed())? {
            let record = self.image_record(&id).map_err(failed())?;
            if record.is_some_and(|it| it.repo_digests.contains(&wanted)) {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Lists the images with these labels. Damaged images are skipped: `verify` reports them.
    pub(crate) fn list(&self, filter: &LabelFilter) -> Result<Vec<Image>> {
        let names = self.names_by_image()?;
        let mut found = Vec::new();
        for id in self.image_ids().map_err(StoreError::io("cannot list the images"))? {
            match self.describe(&id, names.get(&id).map_or(&[], Vec::as_slice)) {
                Ok(image) => found.extend(image),
                Err(err) => tracing::warn!(image = %id, %err, "an image is damaged"),
            }
        }
        found.retain(|it| filter.admits(&it.labels));
        Ok(found)
    }

    fn names_by_image(&self) -> Result<BTreeMap<ImageId, Vec<ImageRef>>> {
        self.all_names().map_err(StoreError::io("cannot read the names of images"))
    }

    /// Adds a name to an image. Another image that has the name loses it.
    pub(crate) fn tag(&self, id: &ImageId, tag: &ImageRef) -> Result<()> {
        let _lock = self.lock()?;
        if self.configuration(id)?.is_none() {
            return Err(StoreError::NoSuchImage(id.clone()));
        }
        self.set_name(tag, id).map_err(StoreError::io("cannot name an image"))
    }

    /// Returns the unpacked layers of an image, topmost first, for `lowerdir` of an overlay. Each occurs only once: the kernel
    /// refuses a directory twice, and a layer's upper occurrence hides its lower one completely. `None` for an unknown image.
    pub(crate) fn layer_dirs(&self, id: &ImageId) -> Result<Option<Vec<PathBuf>>> {
        let Some(bytes) = self.configuration(id)? else { return Ok(None) };
        let mut dirs = Vec::new();
        for diff_id in Configuration::parse(&bytes)?.rootfs.diff_ids.iter().rev() {
            let layer = self.layer(diff_id).map_err(StoreError::io("cannot read a layer's record"))?;
            let layer = layer.ok_or_else(|| StoreError::NoSuchLayer(diff_id.clone()))?;
            let dir = self.layer_dir(diff_id).join(FILES);
            if !dirs.contains(&dir) {
                dirs.push(dir);
            }
            if layer.opaque {
                break;
            }
        }
        Ok(Some(dirs))
    }

    /// Holds an image and its layers. `None` for an unknown image.
    pub(crate) fn hold(&self, id: &ImageId) -> Result<Option<LayerHold>> {
        let failed = || StoreError::io("cannot write to the image store");
        let _lock = self.share_lock()?;
        if self.layer_dirs(id)?.is_none() {
            return Ok(None);
        }
        let mut hold = Hold::new(&self.holds()).map_err(failed())?;
        hold.add(id.as_str()).map_err(failed())?;
        Ok(Some(LayerHold { _hold: hold }))
    }

    /// Returns the layers of all images except these.
    pub(super) fn layers_in_use(&self, without: &[ImageId]) -> Result<BTreeSet<DiffId>> {
        let mut layers = BTreeSet::new();
        for id in self.image_ids().map_err(StoreError::io("cannot list the images"))? {
            if without.contains(&id) {
                continue;
            }
            if let Some(bytes) = self.configuration(&id)? {
                layers.extend(Configuration::parse(&bytes)?.rootfs.diff_ids);
            }
        }
        Ok(layers)
    }
}

/// Renders `repository@digest` with the full repository name and without a tag.
fn repo_digest(name: &ImageRef) -> String {
    let completed = name.completed();
    let (named, digest) = completed.as_str().split_once('@').unwrap_or((completed.as_str(), ""));
    let last = named.rfind('/').map_or(0, |it| it + 1);
    let end = named[last..].find(':').map_or(named.len(), |it| last + it);
    format!("{}@{digest}", &named[..end])
}
