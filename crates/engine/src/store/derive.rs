//! Images made of files that are here: import, commit, export.

use std::io::Write;
use std::path::PathBuf;

use coracle_runtime::{Image, ImageConfig, ImageId, ImageImport, ImageRef};

use super::{Result, Store, StoreError};

/// A container's files, which nothing writes to during the commit.
#[derive(Clone, Debug)]
pub(crate) struct CommitSource {
    /// Its upper directory.
    pub(crate) upper: PathBuf,
    /// The image it was created from.
    pub(crate) base: ImageId,
    /// Absolute paths inside whose content is left out: mount points. A directory of that name is kept, empty, where the
    /// base has none.
    pub(crate) mount_points: Vec<PathBuf>,
    /// Absolute paths inside that the engine itself made for its mounts: left out if they are empty.
    pub(crate) stubs: Vec<PathBuf>,
    /// The start configuration.
    pub(crate) config: ImageConfig,
    /// The whole environment, `NAME=value`.
    pub(crate) env: Vec<String>,
    /// The whole set of labels.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) tag: Option<ImageRef>,
    pub(crate) intermediate: bool,
}

impl Store {
    /// Makes an image of one layer of a root file system's archive, which may be compressed by gzip or zstd.
    pub(crate) fn import(&self, _import: ImageImport) -> Result<Image> {
        Err(StoreError::Configuration("not built".into()))
    }

    /// Makes an image of a container's files: its upper directory becomes one more layer on its image.
    pub(crate) fn commit(&self, source: CommitSource) -> Result<Image> {
        Err(StoreError::NoSuchImage(source.base))
    }

    /// Writes an image as an archive that other engines load: OCI layout, with the manifest of `docker save` beside it.
    pub(crate) fn export(&self, image: &ImageId, _out: &mut dyn Write) -> Result<()> {
        Err(StoreError::NoSuchImage(image.clone()))
    }
}
