//! OCI image layouts, as directory or archive; and archives on disk, whose kind is found by their content.

use std::fs::File;
use std::io::{Read, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use super::docker_archive::DockerArchive;
use super::error::escaped;
use super::manifest::{MAX_MANIFEST, ManifestDocument, OCI_INDEX};
use super::resolve::DocumentKind;
use super::tar_index::TarIndex;
use super::{
    BlobDigest, Descriptor, DocumentSource, ImageSource, LayerBlob, Platform, Result, RootDocument, Scratch,
    SourceError, SourceImage, SourceLayer, resolve_image,
};
use crate::blocking::blocking;

/// Bytes of an archive that is uncompressed before it is read.
const MAX_ARCHIVE: u64 = 128 << 30;

/// An image of an OCI layout.
#[derive(Clone, Debug)]
pub(crate) struct LayoutSource {
    files: LayoutFiles,
    /// The image's name in the index. Without one, or where the index names none, it has to be the only image.
    name: Option<String>,
}

#[derive(Clone, Debug)]
enum LayoutFiles {
    Directory(Arc<OwnedFd>),
    Archive(TarIndex),
}

impl LayoutSource {
    /// The image of a layout in a directory.
    ///
    /// # Errors
    /// [`SourceError::Io`].
    pub(crate) fn open_directory(dir: &Path, name: Option<String>) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(dir, flags, Mode::empty());
        let dir = dir.map_err(|err| SourceError::io("cannot open the image layout")(err.into()))?;
        Ok(Self { files: LayoutFiles::Directory(Arc::new(dir)), name })
    }

    /// The descriptor that the name stands for.
    fn select(&self, manifests: Vec<Descriptor>) -> Result<Vec<Descriptor>> {
        let Some(name) = &self.name else { return Ok(manifests) };
        let digest = name.split_once('@').map(|it| it.1);
        let tag = name.rsplit_once(':').map(|it| it.1).filter(|it| !it.contains('/'));
        let named = |it: &&Descriptor| match digest {
            Some(digest) => it.digest.as_str() == digest,
            None => it.is_named(name) || tag.is_some_and(|tag| it.is_named(tag)),
        };
        let named: Vec<_> = manifests.iter().filter(named).cloned().collect();
        match (named.is_empty(), manifests.len()) {
            (false, _) => Ok(named),
            (true, 1) => Ok(manifests),
            (true, _) => Err(SourceError::NotFound { place: "the image layout".into(), what: name.clone() }),
        }
    }
}

impl LayoutFiles {
    /// Opens a file and tells its size. Links within the layout are followed, others are not.
    fn open(&self, path: &str) -> Result<(Box<dyn Read + Send>, u64)> {
        let absent = || SourceError::NotFound { place: "the image layout".into(), what: escaped(path) };
        match self {
            Self::Archive(index) => {
                let range = index.open(path).ok_or_else(absent)?;
                let size = range.size;
                Ok((Box::new(range), size))
            }
            Self::Directory(dir) => {
                // Opening a pipe or a device must not wait.
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
                let failed = |err: Errno| SourceError::io("cannot read the image layout")(err.into());
                let file = openat2(dir, path, flags, Mode::empty(), within).map_err(|err| match err {
                    // Links that lead outside, or nowhere, are not followed.
                    Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::LOOP => absent(),
                    err => failed(err),
                })?;
                let stat = fstat(&file).map_err(failed)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    return Err(absent());
                }
                Ok((Box::new(File::from(file)), u64::try_from(stat.st_size).unwrap_or_default()))
            }
        }
    }

    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>> {
        let (file, size) = self.open(path)?;
        read_limited(file, size, path, limit)
    }
}

/// Reads a small file whole.
pub(super) fn read_limited(file: impl Read, size: u64, path: &str, limit: u64) -> Result<Vec<u8>> {
    let large = || SourceError::TooLarge { what: format!("file `{}`", escaped(path)), limit };
    if size > limit {
        return Err(large());
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(SourceError::io("cannot read an image"))?;
    if bytes.len() as u64 > limit { Err(large()) } else { Ok(bytes) }
}

fn blob_path(digest: &BlobDigest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

#[async_trait]
impl DocumentSource for LayoutSource {
    async fn root(&self) -> Result<RootDocument> {
        let source = self.clone();
        unblock(move || {
            let index = source.files.read("index.json", MAX_MANIFEST)?;
            let ManifestDocument::Index(manifests) = ManifestDocument::parse(&index, OCI_INDEX)? else {
                return Err(SourceError::malformed("index", &"it is a manifest"));
            };
            let selected = source.select(manifests)?;
            let [only] = selected.as_slice() else {
                return Ok(RootDocument { bytes: index, media_type: OCI_INDEX.into(), digest: None });
            };
            only.check_size("manifest", MAX_MANIFEST)?;
            let bytes = source.files.read(&blob_path(&only.digest), MAX_MANIFEST)?;
            only.check("manifest", &bytes)?;
            Ok(RootDocument { bytes, media_type: only.media_type.clone(), digest: Some(only.digest.clone()) })
        })
        .await
    }

    async fn document(&self, descriptor: &Descriptor, _: DocumentKind) -> Result<Vec<u8>> {
        let (files, path, size) = (self.files.clone(), blob_path(&descriptor.digest), descriptor.size);
        unblock(move || files.read(&path, size)).await
    }
}

#[async_trait]
impl ImageSource for LayoutSource {
    async fn resolve(&self, platform: &Platform) -> Result<SourceImage> {
        resolve_image(self, platform).await
    }

    async fn fetch_layer(&self, layer: &SourceLayer, scratch: &Scratch) -> Result<LayerBlob> {
        let Some(blob) = layer.blob.clone() else {
            return Err(SourceError::malformed("layout", &"a layer has no blob"));
        };
        let (files, scratch) = (self.files.clone(), scratch.clone());
        unblock(move || {
            let (file, _) = files.open(&blob_path(&blob.digest))?;
            LayerBlob::copy(file.take(blob.size + 1), &scratch)?.check(&blob)
        })
        .await
    }
}

/// The image of an archive: an OCI layout or of `docker save`, uncompressed or by gzip. `name` selects one of several.
/// Blocks.
///
/// # Errors
/// [`SourceError::Malformed`] for another archive.
pub(crate) fn open_archive(file: File, name: Option<String>, scratch: &Scratch) -> Result<Arc<dyn ImageSource>> {
    let index = TarIndex::read(uncompressed(file, scratch)?)?;
    if index.open("index.json").is_some() && index.open("oci-layout").is_some() {
        return Ok(Arc::new(LayoutSource { files: LayoutFiles::Archive(index), name }));
    }
    if index.open("manifest.json").is_some() {
        return Ok(Arc::new(DockerArchive::open(index, name.as_deref())?));
    }
    Err(SourceError::malformed("archive", &"it has neither `index.json` with `oci-layout` nor `manifest.json`"))
}

fn uncompressed(mut file: File, scratch: &Scratch) -> Result<File> {
    let failed = || SourceError::io("cannot read an archive");
    let mut head = [0; 2];
    file.rewind().map_err(failed())?;
    let count = file.read(&mut head).map_err(failed())?;
    file.rewind().map_err(failed())?;
    if head[..count] != [0x1f, 0x8b] {
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
        return Err(SourceError::TooLarge { what: "archive".into(), limit: MAX_ARCHIVE });
    }
    Ok(whole.file)
}

/// Runs file operations on another thread.
pub(crate) async fn unblock<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    blocking("read an image", move || Ok(work())).await?
}
