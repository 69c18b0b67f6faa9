//! Names of images: one symbolic link each, whose target is the image's id. A rename moves a name.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use coracle_types::{ImageId, ImageRef, random_hex};

use super::Store;

impl Store {
    fn names(&self) -> PathBuf {
        self.dir.join("names")
    }

    /// Returns the image of a name.
    pub(super) fn name_target(&self, name: &ImageRef) -> io::Result<Option<ImageId>> {
        match std::fs::read_link(self.names().join(file_name(name))) {
            Ok(target) => Ok(image_of(&target)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Sets the image of a name, and replaces an earlier one.
    pub(super) fn set_name(&self, name: &ImageRef, image: &ImageId) -> io::Result<()> {
        let made = self.temporary().join(format!("name-{}", random_hex::<8>()));
        symlink(image.as_str(), &made)?;
        std::fs::rename(&made, self.names().join(file_name(name)))?;
        sync_dir(&self.names())
    }

    /// Removes a name; returns whether it existed.
    pub(super) fn remove_name(&self, name: &ImageRef) -> io::Result<bool> {
        match std::fs::remove_file(self.names().join(file_name(name))) {
            Ok(()) => sync_dir(&self.names()).map(|()| true),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(err) => Err(err),
        }
    }

    /// Returns all names, sorted, by their image.
    pub(super) fn all_names(&self) -> io::Result<BTreeMap<ImageId, Vec<ImageRef>>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for entry in std::fs::read_dir(self.names())? {
            let entry = entry?;
            let name = entry.file_name().to_str().and_then(|it| ImageRef::parse(it.replace('+', "/")).ok());
            // Another process may have removed it meanwhile.
            let target = std::fs::read_link(entry.path()).ok().and_then(|it| image_of(&it));
            if let (Some(name), Some(image)) = (name, target) {
                all.entry(image).or_default().push(name);
            }
        }
        all.values_mut().for_each(|it| it.sort_by(|a, b| a.as_str().cmp(b.as_str())));
        Ok(all)
    }
}

/// The file name for an image name. `+` does not occur in image names.
fn file_name(name: &ImageRef) -> String {
    name.completed().as_str().replace('/', "+")
}

fn image_of(target: &Path) -> Option<ImageId> {
    ImageId::parse(target.to_str()?).ok()
}

/// Syncs a directory, so that changes of names in it survive a power loss.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    std::fs::File::open(dir)?.sync_all()
}
