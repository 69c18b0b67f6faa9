//! Names and images removed, with the layers that nothing else needs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;

use coracle_archive::oci::Configuration;
use coracle_types::{ImageId, ImageRef};
use serde::Deserialize;

use super::hold::{Hold, Holds};
use super::layer::read_json;
use super::{DiffId, Result, Store, StoreError};

/// What the store reads of a container's record.
#[derive(Debug, Deserialize)]
struct ContainerUse {
    image: ImageId,
    name: String,
}

/// What containers and running processes use.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Ids of images, and who uses each.
    images: Vec<(ImageId, String)>,
    pub(super) layers: BTreeSet<DiffId>,
    /// A container whose record cannot be read: it may use anything.
    unknown: Option<String>,
    pub(super) holds: Holds,
}

impl Uses {
    /// Who uses an image.
    pub(super) fn user_of(&self, image: &ImageId) -> Option<String> {
        if self.holds.ids.contains(image.as_str()) {
            return Some("another process".into());
        }
        let container = self.images.iter().find(|(it, _)| it == image).map(|(_, name)| name.clone());
        container.or_else(|| self.unknown.clone()).map(|it| format!("container `{it}`"))
    }

    pub(super) fn needs_layer(&self, layer: &DiffId) -> bool {
        self.unknown.is_some() || self.layers.contains(layer) || self.holds.ids.contains(layer.as_str())
    }
}

impl Store {
    /// Reads who uses what. Under the lock it stays so, except that containers end.
    pub(super) fn uses(&self) -> Result<Uses> {
        let failed = || StoreError::io("cannot read which images are in use");
        let mut uses = Uses { holds: Holds::read(&self.holds()).map_err(failed())?, ..Uses::default() };
        for entry in std::fs::read_dir(&self.containers).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            match read_json::<ContainerUse>(&path.join("config.json")) {
                Ok(Some(it)) => {
                    uses.images.push((it.image, it.name));
                }
                Ok(None) => {}
                Err(err) if is_no_record(&err) => {}
                Err(_) => uses.unknown = path.file_name().map(|it| it.to_string_lossy().into_owned()),
            }
        }
        Ok(uses)
    }

    /// Removes a name, and its image with the last one. An unused name is no error.
    ///
    /// # Errors
    /// [`StoreError::InUse`] for the last name of an image that a container uses.
    pub(crate) fn untag(&self, name: &ImageRef) -> Result<()> {
        if let Ok(id) = ImageId::parse(name.as_str()) {
            return self.remove(&id);
        }
        let failed = || StoreError::io("cannot remove a name of an image");
        let lock = self.lock()?;
        let Some((name, id)) = self.target_of(name).map_err(failed())? else { return Ok(()) };
        let names = self.all_names().map_err(failed())?.remove(&id).unwrap_or_default();
        if names.len() > 1 {
            return self.remove_name(&name).map(drop).map_err(failed());
        }
        let marker = self.mark_removal()?;
        let taken = self.take_image(&id, &names)?;
        drop((lock, marker));
        self.delete(&taken);
        Ok(())
    }

    /// Removes an image by id, with its names. A missing one is no error.
    ///
    /// # Errors
    /// [`StoreError::InUse`], [`StoreError::SeveralRepositories`].
    pub(crate) fn remove(&self, id: &ImageId) -> Result<()> {
        let failed = || StoreError::io("cannot remove an image");
        let lock = self.lock()?;
        let names = self.all_names().map_err(failed())?.remove(id).unwrap_or_default();
        let repositories: BTreeSet<_> = names.iter().map(repository).collect();
        if repositories.len() > 1 {
            return Err(StoreError::SeveralRepositories(id.clone()));
        }
        let marker = self.mark_removal()?;
        let taken = self.take_image(id, &names)?;
        drop((lock, marker));
        self.delete(&taken);
        Ok(())
    }

    /// A hold of nothing, under the lock: should this process die on the way, the next one sees that it has to collect.
    pub(super) fn mark_removal(&self) -> Result<Hold> {
        Hold::new(&self.holds()).map_err(StoreError::io("cannot write to the image store"))
    }

    /// Takes an image, its names and its own layers away, under the lock. Names of what is to be deleted in the trash.
    fn take_image(&self, id: &ImageId, names: &[ImageRef]) -> Result<Vec<OsString>> {
        let failed = || StoreError::io("cannot remove an image");
        let uses = self.uses()?;
        let configuration = self.configuration(id)?;
        if configuration.is_some()
            && let Some(user) = uses.user_of(id)
        {
            return Err(StoreError::InUse { image: id.clone(), user });
        }
        // A name without an image is damage, an image without a name is not: so names go first.
        for name in names {
            self.remove_name(name).map_err(failed())?;
        }
        let Some(configuration) = configuration else { return Ok(Vec::new()) };
        let mut taken = Vec::new();
        taken.extend(self.trash.take(&self.image_dir(id)).map_err(failed())?);
        // Which layers others use is unknown while one image cannot be read; garbage collection finds them later.
        let Ok(others) = self.layers_in_use(&[]) else { return Ok(taken) };
        for layer in Configuration::parse(&configuration).map(|it| it.rootfs.diff_ids).unwrap_or_default() {
            if !others.contains(&layer) && !uses.needs_layer(&layer) {
                taken.extend(self.trash.take(&self.layer_dir(&layer)).map_err(failed())?);
            }
        }
        Ok(taken)
    }

    /// Deletes what was taken away. What cannot be deleted now waits for a collection.
    pub(super) fn delete(&self, taken: &[OsString]) {
        if let Err(err) = self.trash.delete(taken) {
            tracing::debug!("cannot delete what was removed from the image store now: {err}");
        }
    }
}

/// Files beside the containers' directories, and what is gone meanwhile.
fn is_no_record(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::NotADirectory | io::ErrorKind::NotFound)
}

/// A name without its tag.
fn repository(name: &ImageRef) -> String {
    let name = name.as_str();
    let last = name.rfind('/').map_or(0, |it| it + 1);
    let end = name[last..].find(':').map_or(name.len(), |it| last + it);
    name[..end].to_owned()
}
