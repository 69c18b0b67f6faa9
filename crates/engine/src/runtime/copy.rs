//! Copies images into the engine's store from registries, files and other engines.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coracle_archive::oci::Platform;
use coracle_runtime::Image;
use coracle_types::{ImageRef, Result};

use super::{EmbeddedRuntime, Engine};
use crate::cancel::CancelFlag;
use crate::registry::{RegistryAccess, RegistrySource, Timeouts};
use crate::source::{
    Deadline, ImageCopy, ImageSource, LocalEngine, LocalImages, Scratch, SourceError, copy_into, open_archive,
    save_from_engine, unblock,
};

/// Maximum size of an image's layers in bytes, both as fetched and as unpacked.
const MAX_IMAGE: u64 = 128 << 30;

/// Where an image is copied from.
#[derive(Debug)]
pub enum ImageOrigin {
    /// The registry that its name refers to.
    Registry,
    /// An OCI image layout in a directory.
    Layout(PathBuf),
    /// An archive: an OCI image layout or one of `docker save`, uncompressed or gzip.
    Archive(File),
    /// Docker's store on this machine.
    Docker,
    /// The same user's Podman store on this machine.
    Podman,
}

impl EmbeddedRuntime {
    /// Copies an image into the store under a name. Layers that the store has are not copied again. If a layout or
    /// archive has only one image, its name there does not matter.
    ///
    /// # Errors
    /// [`Error::PullFailed`](coracle_types::Error::PullFailed) with the reason,
    /// [`Error::TimedOut`](coracle_types::Error::TimedOut) after the deadline, and
    /// [`Error::NotInstalled`](coracle_types::Error::NotInstalled) if the program of Docker or Podman is missing.
    pub async fn copy_image(&self, origin: ImageOrigin, name: &ImageRef, deadline: Duration) -> Result<Image> {
        let copied = Box::pin(self.engine.copy_image(origin, name, Deadline::after(deadline))).await;
        copied.map_err(|err| err.into_error(name))
    }
}

impl Engine {
    async fn copy_image(
        &self,
        origin: ImageOrigin,
        name: &ImageRef,
        deadline: Deadline,
    ) -> std::result::Result<Image, SourceError> {
        let cancel = CancelFlag::new().map_err(SourceError::io("cannot copy an image"))?;
        // Stops the threads that read, write and unpack if the caller drops this future.
        let _cancel_on_drop = cancel.cancel_on_drop();
        let copy = ImageCopy {
            name: name.clone(),
            platform: Platform::of_this_machine(),
            limits: self.layer_limits(),
            max_bytes: self.options.registries.max_image_bytes.unwrap_or(MAX_IMAGE),
            scratch: Scratch::new(self.directories.trash(), cancel),
            deadline,
        };
        let source = deadline.limit(self.open_source(origin, &copy)).await?;
        copy_into(&self.store, &*source, &copy).await
    }

    async fn open_source(
        &self,
        origin: ImageOrigin,
        copy: &ImageCopy,
    ) -> std::result::Result<Arc<dyn ImageSource>, SourceError> {
        let (options, name, scratch) = (&self.options.registries, &copy.name, copy.scratch.clone());
        let wanted = Some(name.to_string());
        match origin {
            ImageOrigin::Registry => {
                let (home, options) = (self.options.home.clone(), options.clone());
                let access = RegistryAccess { home, options, timeouts: Timeouts::default() };
                Ok(Arc::new(RegistrySource::open(name, access).await?))
            }
            ImageOrigin::Layout(dir) => Ok(Arc::new(LocalImages::open_directory(&dir, wanted)?)),
            ImageOrigin::Archive(file) => unblock(move || open_archive(file, wanted, &scratch)).await,
            ImageOrigin::Docker => save_from_engine(LocalEngine::Docker, name, options, &scratch).await,
            ImageOrigin::Podman => save_from_engine(LocalEngine::Podman, name, options, &scratch).await,
        }
    }
}
