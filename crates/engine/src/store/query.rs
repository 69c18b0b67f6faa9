//! Images found, listed, tagged and held.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use coracle_archive::oci::Configuration;
use coracle_runtime::{Image, LabelFilter};
use coracle_types::{ImageId, ImageRef};

use super::hold::Hold;
use super::layer::FILES;
use super::{DiffId, Result, Store, StoreError};

/// An image that a container is being made of: neither it nor its layers are removed until this is dropped. Drop it when
/// the container's record, which names the image, is in place: removal and collection read `containers/*/config.json`.
#[derive(Debug)]
pub(crate) struct LayerHold {
    _hold: Hold,
}

impl Store {
    /// The image of that id.
    pub(crate) fn image(&self, id: &ImageId) -> Result<Option<Image>> {
        let names = self.names_by_image()?;
        self.describe(id, names.get(id).map_or(&[], Vec::as_slice))
    }

    /// The images of these names or ids, in their order. A missing one is left out.
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

    /// The image that a name, an id or a digest leads to.
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

    /// The name that leads to an image, and the image. A name without a registry is Docker Hub's or one of this machine
    /// alone.
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

    /// The images that carry these labels. A damaged one hides no other: `verify` reports it.
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

    /// Gives an image another name. An image that had the name loses it.
    pub(crate) fn tag(&self, id: &ImageId, tag: &ImageRef) -> Result<()> {
        let _lock = self.lock()?;
        if self.configuration(id)?.is_none() {
            return Err(StoreError::NoSuchImage(id.clone()));
        }
        self.set_name(tag, id).map_err(StoreError::io("cannot name an image"))
    }

    /// The unpacked layers of an image, topmost first, as `lowerdir` of an overlay takes them: each once, since the kernel
    /// refuses a directory that is two layers, and the upper occurrence of a layer hides all of a lower one. `None` for an
    /// unknown image.
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

    /// Keeps an image and its layers. `None` for an unknown image.
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

    /// The layers of all images, but not of these.
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

/// `repository@digest`, completed, and without a tag.
fn repo_digest(name: &ImageRef) -> String {
    let completed = name.completed();
    let (named, digest) = completed.as_str().split_once('@').unwrap_or((completed.as_str(), ""));
    let last = named.rfind('/').map_or(0, |it| it + 1);
    let end = named[last..].find(':').map_or(named.len(), |it| last + it);
    format!("{}@{digest}", &named[..end])
}
