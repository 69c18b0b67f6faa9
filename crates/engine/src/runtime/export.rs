//! Exports images to files, for other engines and machines.

use std::fs::File;

use coracle_types::{ImageId, Result};

use super::EmbeddedRuntime;

impl EmbeddedRuntime {
    /// Writes an image with its names to an archive that `docker load`, `podman load` and [`copy_image`](Self::copy_image)
    /// can read. Layers are packed again, so a layer's digest and the image's id may differ from those of the original.
    ///
    /// # Errors
    /// If the image does not exist, or the file cannot be written.
    pub async fn export_image(&self, image: &ImageId, into: File) -> Result<()> {
        let image = image.clone();
        self.with_store("save", move |store| store.export(&image, &into)).await
    }
}
