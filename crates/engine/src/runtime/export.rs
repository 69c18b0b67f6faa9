//! Images written for other engines.

use std::fs::File;

use coracle_runtime::{Image, ImageRef, Result};

use super::EmbeddedRuntime;
use crate::blocking::blocking;

impl EmbeddedRuntime {
    /// Writes an image as an archive that Docker and Podman load: an OCI layout with a `manifest.json`, uncompressed.
    /// `None`, and nothing is written, where there is no image of that name.
    ///
    /// # Errors
    /// When its layers cannot be read, or the file cannot be written.
    pub async fn export_image(&self, name: &ImageRef, out: File) -> Result<Option<Image>> {
        let (engine, name) = (self.engine.clone(), name.clone());
        blocking("save an image", move || {
            let Some(image) = engine.store.find(&[name])?.pop() else { return Ok(None) };
            engine.store.export(&image.id, &out)?;
            Ok(Some(image))
        })
        .await
    }
}
