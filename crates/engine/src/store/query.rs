//! Images found, listed, tagged and removed.

use std::path::PathBuf;

use coracle_runtime::{Image, ImageId, ImageRef, LabelFilter};

use super::{Result, Store};

impl Store {
    /// The image of that id.
    pub(crate) fn image(&self, _id: &ImageId) -> Result<Option<Image>> {
        let _ = (&self.dir, &self.privileges);
        Ok(None)
    }

    /// The images of these names or ids, in their order. A missing one is left out.
    pub(crate) fn find(&self, _names: &[ImageRef]) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    /// The images that carry these labels.
    pub(crate) fn list(&self, _filter: &LabelFilter) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    /// Gives an image another name. An image that had the name loses it.
    pub(crate) fn tag(&self, _image: &ImageId, _tag: &ImageRef) -> Result<()> {
        Ok(())
    }

    /// Removes a name, and its image with the last one.
    pub(crate) fn untag(&self, _name: &ImageRef) -> Result<()> {
        Ok(())
    }

    /// Removes an image by id, with its names. A missing one is no error.
    pub(crate) fn remove(&self, _image: &ImageId) -> Result<()> {
        Ok(())
    }

    /// The unpacked layers of an image, topmost first, as `lowerdir` of an overlay takes them. `None` for an unknown image.
    pub(crate) fn layer_dirs(&self, _image: &ImageId) -> Result<Option<Vec<PathBuf>>> {
        Ok(None)
    }

    /// The image's OCI configuration, byte for byte: health check, volumes and what else [`Image`] does not say.
    pub(crate) fn configuration(&self, _image: &ImageId) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
}
