//! Images as files, for other engines and machines.

use std::fs::File;

use coracle_types::{ImageId, Result};

use super::EmbeddedRuntime;

impl EmbeddedRuntime {
    /// Writes an image with its names as an archive that `docker load`, `podman load` and
    /// [`copy_image`](Self::copy_image) read. Layers that came as another archive than their canonical one get another
    /// digest, and the image another id.
    ///
    /// # Errors
    /// When there is no such image, or the file cannot be written.
    pub async fn export_image(&self, image: &ImageId, into: File) -> Result<()> {
        let image = image.clone();
        self.with_store("save", move |store| store.export(&image, &into)).await
    }
}
