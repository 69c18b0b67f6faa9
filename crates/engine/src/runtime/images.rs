//! Images.

use std::time::Duration;

use async_trait::async_trait;
use coracle_runtime::{
    Capability, Image, ImageBuild, ImageCommit, ImageId, ImageImport, ImageRef, ImageStore, LabelFilter, Result,
};

use super::{EmbeddedRuntime, unsupported};
use crate::registry::{RegistryAccess, RegistrySource, Timeouts};
use crate::source::{Deadline, ImageCopy, Platform, copy_into};
use crate::store::LayerLimits;

#[async_trait]
impl ImageStore for EmbeddedRuntime {
    async fn find_images(&self, _names: &[ImageRef]) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn list_images(&self, _filter: &LabelFilter) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn pull_image(&self, image: &ImageRef, deadline: Duration) -> Result<Image> {
        let engine = &self.engine;
        let limits = LayerLimits::default();
        let bytes = engine.options.registries.max_layer_bytes.unwrap_or(limits.bytes);
        let copy = ImageCopy {
            name: image.clone(),
            platform: Platform::of_this_machine(),
            limits: LayerLimits { bytes, ..limits },
            scratch: engine.directories.trash(),
            deadline: Deadline::after(deadline),
        };
        let options = engine.options.registries.clone();
        let access = RegistryAccess { home: engine.options.home.clone(), options, timeouts: Timeouts::default() };
        let pull = async {
            let source = RegistrySource::open(image, access).await?;
            copy_into(&engine.store, &source, &copy, &|event| tracing::debug!(%image, ?event, "pull")).await
        };
        Box::pin(pull).await.map_err(|err| err.into_error(image))
    }

    async fn import_image(&self, _import: ImageImport) -> Result<Image> {
        Err(unsupported(Capability::Build))
    }

    async fn commit_image(&self, _commit: &ImageCommit) -> Result<Image> {
        Err(unsupported(Capability::Commit))
    }

    async fn build_image(&self, _build: &ImageBuild) -> Result<Image> {
        Err(unsupported(Capability::Build))
    }

    async fn tag_image(&self, _image: &ImageId, _tag: &ImageRef) -> Result<()> {
        Err(unsupported(Capability::Build))
    }

    async fn remove_image(&self, _image: &ImageId) -> Result<()> {
        Ok(())
    }

    async fn untag_image(&self, _name: &ImageRef) -> Result<()> {
        Ok(())
    }
}
