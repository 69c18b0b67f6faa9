//! Images.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_runtime::{Image, ImageBuild, ImageCommit, ImageImport, ImageStore, LabelFilter};
use coracle_types::{Capability, ImageId, ImageRef, Result};

use super::{EmbeddedRuntime, ImageOrigin};
use crate::blocking::blocking;
use crate::engine::Engine;
use crate::error::{store_error, unsupported};
use crate::store::{Store, StoreError};
use crate::uninterrupted::uninterrupted;

/// The time limit for loading an image from an archive.
const LOAD_DEADLINE: Duration = Duration::from_secs(1800);

impl EmbeddedRuntime {
    /// Runs an operation of the store on a thread for blocking work.
    pub(super) async fn with_store<T: Send + 'static>(
        &self,
        verb: &'static str,
        work: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T> {
        let engine: Arc<Engine> = Arc::clone(&self.engine);
        blocking(verb, move || work(&engine.store).map_err(|err| store_error(verb, err))).await
    }
}

#[async_trait]
impl ImageStore for EmbeddedRuntime {
    async fn find_images(&self, names: &[ImageRef]) -> Result<Vec<Image>> {
        let names = names.to_vec();
        self.with_store("image inspect", move |store| store.find(&names)).await
    }

    async fn list_images(&self, filter: &LabelFilter) -> Result<Vec<Image>> {
        let filter = filter.clone();
        self.with_store("image ls", move |store| store.list(&filter)).await
    }

    async fn pull_image(&self, image: &ImageRef, deadline: Duration) -> Result<Image> {
        self.copy_image(ImageOrigin::Registry, image, deadline).await
    }

    async fn import_image(&self, import: ImageImport) -> Result<Image> {
        let limits = self.engine.layer_limits();
        self.with_store("import", move |store| store.import(import, limits)).await
    }

    async fn commit_image(&self, commit: &ImageCommit) -> Result<Image> {
        let (engine, commit) = (self.engine.clone(), commit.clone());
        uninterrupted("commit", async move { crate::container::commit(&engine, &commit).await }).await
    }

    async fn build_image(&self, _build: &ImageBuild) -> Result<Image> {
        Err(unsupported(Capability::Build))
    }

    async fn save_image(&self, image: &ImageId, into: File) -> Result<()> {
        self.export_image(image, into).await
    }

    async fn load_image(&self, archive: File, name: &ImageRef) -> Result<Image> {
        self.copy_image(ImageOrigin::Archive(archive), name, LOAD_DEADLINE).await
    }

    async fn tag_image(&self, image: &ImageId, tag: &ImageRef) -> Result<()> {
        let (image, tag) = (image.clone(), tag.clone());
        self.with_store("tag", move |store| store.tag(&image, &tag)).await
    }

    async fn remove_image(&self, image: &ImageId) -> Result<()> {
        let image = image.clone();
        self.with_store("image rm", move |store| store.remove(&image)).await
    }

    async fn untag_image(&self, name: &ImageRef) -> Result<()> {
        let name = name.clone();
        self.with_store("image rm", move |store| store.untag(&name)).await
    }
}
