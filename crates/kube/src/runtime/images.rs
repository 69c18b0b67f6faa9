//! The image store of a cluster: it finds images, pushes those that were built elsewhere, and builds none.

use std::fs::File;
use std::time::Duration;

use async_trait::async_trait;
use coracle_runtime::{Image, ImageBuild, ImageCommit, ImageImport, ImageStore, LabelFilter};
use coracle_types::{Capability, Error, Excerpt, ImageId, ImageRef, Result};

use super::KubeRuntime;
use crate::images::{LOOK, find_image};
use crate::push::push;
use crate::unsupported::unsupported;

#[async_trait]
impl ImageStore for KubeRuntime {
    /// An image counts as local if its registry has it. A registry that does not answer has none; the pull reports why.
    async fn find_images(&self, names: &[ImageRef]) -> Result<Vec<Image>> {
        let mut found: Vec<Image> = Vec::new();
        for name in names {
            if found.iter().any(|it| it.is_named(name)) {
                continue;
            }
            match find_image(self.cluster(), name, LOOK).await {
                Ok(image) => found.extend(image),
                Err(Error::PullFailed { excerpt, .. }) => tracing::debug!(%name, %excerpt, "no registry describes it"),
                Err(err) => return Err(err),
            }
        }
        Ok(found)
    }

    /// A registry cannot list by labels, and no image is Coracle's.
    async fn list_images(&self, _: &LabelFilter) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn pull_image(&self, image: &ImageRef, deadline: Duration) -> Result<Image> {
        let missing = || Error::PullFailed {
            image: image.clone(),
            excerpt: Excerpt::from_bytes(b"its registry has no such image"),
        };
        find_image(self.cluster(), image, deadline).await?.ok_or_else(missing)
    }

    async fn import_image(&self, _: ImageImport) -> Result<Image> {
        Err(unsupported(Capability::Build))
    }

    async fn commit_image(&self, _: &ImageCommit) -> Result<Image> {
        Err(unsupported(Capability::Commit))
    }

    async fn build_image(&self, _: &ImageBuild) -> Result<Image> {
        Err(unsupported(Capability::Build))
    }

    async fn save_image(&self, _: &ImageId, _: File) -> Result<()> {
        Err(unsupported(Capability::Commit))
    }

    /// Pushes to the configured registry.
    async fn load_image(&self, archive: File, name: &ImageRef) -> Result<Image> {
        push(self.cluster(), archive, name).await
    }

    async fn tag_image(&self, _: &ImageId, _: &ImageRef) -> Result<()> {
        Err(unsupported(Capability::Commit))
    }

    /// Nodes remove unused images by themselves.
    async fn remove_image(&self, _: &ImageId) -> Result<()> {
        Ok(())
    }

    async fn untag_image(&self, _: &ImageRef) -> Result<()> {
        Ok(())
    }
}
