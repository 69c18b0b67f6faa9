//! Images.

use std::time::Duration;

use async_trait::async_trait;
use coracle_runtime::{
    Capability, Image, ImageBuild, ImageCommit, ImageId, ImageImport, ImageRef, ImageStore, LabelFilter, Result,
};

use super::{EmbeddedRuntime, ImageOrigin, unsupported};

#[async_trait]
impl ImageStore for EmbeddedRuntime {
    async fn find_images(&self, _names: &[ImageRef]) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn list_images(&self, _filter: &LabelFilter) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn pull_image(&self, image: &ImageRef, deadline: Duration) -> Result<Image> {
        self.copy_image(ImageOrigin::Registry, image, deadline).await
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
