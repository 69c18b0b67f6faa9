//! Images of an engine.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use coracle_types::{ByteSize, ContainerId, Error, ImageId, ImageRef, Result};

use crate::{Image, ImageConfig, LabelFilter};

/// The image store of an engine.
#[async_trait]
pub trait ImageStore: Send + Sync {
    /// The local images of these names, in their order and by one call. A missing one is left out; [`Image::is_named`]
    /// matches them to names.
    async fn find_images(&self, names: &[ImageRef]) -> Result<Vec<Image>>;

    /// Local images that carry all of these labels.
    async fn list_images(&self, filter: &LabelFilter) -> Result<Vec<Image>>;

    /// Fetches an image from its registry.
    ///
    /// # Errors
    /// [`Error::PullFailed`] with the engine's words, [`Error::TimedOut`] after the deadline.
    async fn pull_image(&self, image: &ImageRef, deadline: Duration) -> Result<Image>;

    /// Creates an image of one layer from an uncompressed tar of a root file system.
    async fn import_image(&self, import: ImageImport) -> Result<Image>;

    /// Creates an image of a container's files: its changes to its image become one more layer. Mounts are left out.
    /// The container is paused during the commit where its engine can.
    async fn commit_image(&self, commit: &ImageCommit) -> Result<Image>;

    /// Builds an image by a Dockerfile.
    async fn build_image(&self, build: &ImageBuild) -> Result<Image>;

    /// Writes an image as an archive: an OCI image layout, or what [`ImageArchive::open_saved`] reads besides. `into` is
    /// empty.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by engines that make no image of a container.
    ///
    /// [`ImageArchive::open_saved`]: coracle_archive::image::ImageArchive::open_saved
    async fn save_image(&self, image: &ImageId, into: File) -> Result<()>;

    /// Loads the image of an archive that [`ImageArchive::write`] wrote under this name. An image that had the name loses
    /// it.
    ///
    /// # Errors
    /// As for [`save_image`](Self::save_image), and when the engine refuses it.
    ///
    /// [`ImageArchive::write`]: coracle_archive::image::ImageArchive::write
    async fn load_image(&self, archive: File, name: &ImageRef) -> Result<Image>;

    /// Gives an image another name. An image that had the name loses it.
    async fn tag_image(&self, image: &ImageId, tag: &ImageRef) -> Result<()>;

    /// Removes an image by id. A missing one is no error; one with names in several repositories is refused.
    async fn remove_image(&self, image: &ImageId) -> Result<()>;

    /// Removes one name of an image, and the image with its last one. An unused name is no error.
    async fn untag_image(&self, name: &ImageRef) -> Result<()>;
}

/// An image to be imported.
#[derive(Debug)]
pub struct ImageImport {
    /// The root file system.
    pub tar: File,
    /// The name it gets.
    pub tag: ImageRef,
    /// Environment of the image (`PATH` above all: imported images have none).
    pub env: Vec<(String, String)>,
    /// Labels of the image.
    pub labels: Vec<(String, String)>,
}

/// A container to be committed. Its environment and labels go along.
#[derive(Clone, Debug)]
pub struct ImageCommit {
    /// The container.
    pub container: ContainerId,
    /// The name the image gets, or none.
    pub tag: Option<ImageRef>,
    /// Labels of the image. They replace those of the container and cannot take any away. Without line breaks.
    pub labels: Vec<(String, String)>,
    /// The start configuration of the image, in place of the container's.
    pub config: ImageConfig,
}

/// An image to be built by a Dockerfile. Its base images have to be local: the engine fetches nothing by itself.
#[derive(Clone, Debug)]
pub struct ImageBuild {
    /// A directory that Coracle created, with all files that the Dockerfile may copy and no others.
    pub context: PathBuf,
    /// The Dockerfile, which need not lie in it.
    pub dockerfile: PathBuf,
    /// The name the image gets.
    pub tag: ImageRef,
    /// Values of its arguments, which stay in the image's history.
    pub args: Vec<(String, String)>,
    /// The stage to build; the last one if unset.
    pub target: Option<String>,
    /// Its commands have no network.
    pub offline: bool,
    /// Memory of each of its commands.
    pub memory: Option<ByteSize>,
    /// Labels of the image.
    pub labels: Vec<(String, String)>,
    /// The build ends after this time.
    pub deadline: Duration,
}

/// The local image of that name, or, if there is none, the one that its registry provides.
///
/// # Errors
/// As for [`ImageStore::pull_image`].
pub async fn find_or_pull(store: &dyn ImageStore, image: &ImageRef, deadline: Duration) -> Result<Image> {
    match store.find_images(std::slice::from_ref(image)).await?.into_iter().next() {
        Some(local) => Ok(local),
        None => store.pull_image(image, deadline).await,
    }
}

/// The image that a verb created, as the engine shows it afterwards.
///
/// # Errors
/// [`Error::Unreadable`] when the engine shows none.
pub fn created_image(verb: &'static str, found: Vec<Image>) -> Result<Image> {
    let missing = || Error::Unreadable { verb, detail: "the engine named no image".into() };
    found.into_iter().next().ok_or_else(missing)
}
