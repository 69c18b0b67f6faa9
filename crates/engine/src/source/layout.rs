//! Images in files: OCI layouts, as directory or archive, and archives of `docker save`.

use std::fs::File;
use std::io::{Read, Seek as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_archive::index::TarIndex;
use coracle_archive::layout::ImageSet;
use coracle_archive::oci::{LayerEncoding, Platform, ResolvedImage, ResolvedLayer};

use super::{ImageSource, LayerBlob, Result, Scratch, SourceError};
use crate::blocking::blocking;

/// Maximum size of an uncompressed archive, in bytes.
const MAX_ARCHIVE: u64 = 128 << 30;

/// An image of a layout or an archive.
#[derive(Clone, Debug)]
pub(crate) struct LocalImages {
    images: ImageSet,
    /// The name of the image. If it is `None`, or the images have no names, there may be only one image.
    name: Option<String>,
}

impl LocalImages {
    /// Opens a layout in a directory.
    ///
    /// # Errors
    /// [`SourceError::Io`].
    pub(crate) fn open_directory(dir: &Path, name: Option<String>) -> Result<Self> {
        let images = ImageSet::open_directory(dir).map_err(SourceError::io("cannot open the image layout"))?;
        Ok(Self { images, name })
    }
}

#[async_trait]
impl ImageSource for LocalImages {
    async fn resolve(&self, platform: &Platform) -> Result<ResolvedImage> {
        let (source, platform) = (self.clone(), platform.clone());
        unblock(move || Ok(source.images.image(source.name.as_deref(), &platform)?)).await
    }

    async fn fetch_layer(&self, layer: &ResolvedLayer, scratch: &Scratch) -> Result<LayerBlob> {
        let (images, layer, scratch) = (self.images.clone(), layer.clone(), scratch.clone());
        unblock(move || {
            let (file, _) = images.open(&layer.path())?;
            match layer.blob() {
                Some(blob) => LayerBlob::copy(file.take(blob.size + 1), &scratch)?.check(blob),
                // The store checks the uncompressed content.
                None => LayerBlob::copy(file, &scratch),
            }
        })
        .await
    }
}

/// Opens an archive: an OCI layout or one of `docker save`, uncompressed or gzip. `name` selects one of several images.
/// Blocks.
///
/// # Errors
/// [`SourceError::Image`] for any other archive.
pub(crate) fn open_archive(file: File, name: Option<String>, scratch: &Scratch) -> Result<Arc<dyn ImageSource>> {
    let images = ImageSet::from_index(TarIndex::read(uncompressed(file, scratch)?)?)?;
    Ok(Arc::new(LocalImages { images, name }))
}

fn uncompressed(mut file: File, scratch: &Scratch) -> Result<File> {
    let failed = || SourceError::io("cannot read an archive");
    file.rewind().map_err(failed())?;
    if LayerEncoding::detect(&file).map_err(failed())? != LayerEncoding::Gzip {
        return Ok(file);
    }
    let mut whole = scratch.create_file().map_err(failed())?;
    let mut content = flate2::read::MultiGzDecoder::new(file).take(MAX_ARCHIVE + 1);
    let (mut size, mut buffer) = (0, vec![0; 256 << 10]);
    loop {
        match content.read(&mut buffer).map_err(|err| SourceError::malformed("archive", &err))? {
            0 => break,
            count => {
                whole.write_all(&buffer[..count]).map_err(failed())?;
                size += count as u64;
            }
        }
    }
    if size > MAX_ARCHIVE {
        return Err(SourceError::too_large("archive", MAX_ARCHIVE));
    }
    Ok(whole.file)
}

/// Runs file operations on another thread.
pub(crate) async fn unblock<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    blocking("read an image", move || Ok(work())).await?
}
