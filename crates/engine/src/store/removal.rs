//! Removes names and images, with the layers that nothing else needs.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;

use coracle_archive::oci::Configuration;
use coracle_types::{ImageId, ImageRef};
use serde::Deserialize;

use super::hold::{Hold, Holds};
use super::layer::read_json;
use super::{DiffId, Result, Store, StoreError};

/// The part of a container's record that the store reads.
#[derive(Debug, Deserialize)]
struct ContainerUse {
    image: ImageId,
    name: String,
}

/// The images and layers that containers and running processes use.
#[derive(Debug, Default)]
pub(super) struct Uses {
    /// Ids of images, each with the name of a user.
    images: Vec<(ImageId, String)>,
    pub(super) layers: BTreeSet<DiffId>,
    /// A container whose record cannot be read, and which may use any image.
    unknown: Option<String>,
    pub(super) holds: Holds,
}

impl Uses {
    /// Returns the name of a user of an image, if there is one.
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
    /// Reads the uses. While the lock is held, none is added.
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

    /// Removes a name, and the image if it was its last name. A missing name is no error.
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

    /// Removes an image by id, with its names. A missing image is no error.
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

    /// Creates an empty hold, under the lock. If this process dies during the removal, the next one sees that a collection is
    /// due.
    pub(super) fn mark_removal(&self) -> Result<Hold> {
        Hold::new(&self.holds()).map_err(StoreError::io("cannot write to the image store"))
    }

    /// Moves an image and its own layers to the trash, and removes its names, under the lock. Returns the names in the trash,
    /// which are to be deleted.
    fn take_image(&self, id: &ImageId, names: &[ImageRef]) -> Result<Vec<OsString>> {
        let failed = || StoreError::io("cannot remove an image");
        let uses = self.uses()?;
        let configuration = self.configuration(id)?;
        if configuration.is_some()
            && let Some(user) = uses.user_of(id)
        {
            return Err(StoreError::InUse { image: id.clone(), user });
        }
        // Names are removed first: a name without an image is damage, an image without a name is not.
        for name in names {
            self.remove_name(name).map_err(failed())?;
        }
        let Some(configuration) = configuration else { return Ok(Vec::new()) };
        let mut taken = Vec::new();
        taken.extend(self.trash.take(&self.image_dir(id)).map_err(failed())?);
        // If an image cannot be read, it is unknown which layers it uses. Garbage collection removes unused ones later.
        let Ok(others) = self.layers_in_use(&[]) else { return Ok(taken) };
        for layer in Configuration::parse(&configuration).map(|it| it.rootfs.diff_ids).unwrap_or_default() {
            if !others.contains(&layer) && !uses.needs_layer(&layer) {
                taken.extend(self.trash.take(&self.layer_dir(&layer)).map_err(failed())?);
            }
        }
        Ok(taken)
    }

    /// Deletes directories in the trash. Those that cannot be deleted now are left to a collection.
    pub(super) fn delete(&self, taken: &[OsString]) {
        if let Err(err) = self.trash.delete(taken) {
            tracing::debug!("cannot delete what was removed from the image store now: {err}");
        }
    }
}

/// Whether an error means that an entry is no container, or was removed meanwhile.
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
