//! OCI image layouts, as directory or archive; and archives on disk, whose kind is found by their content.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_runtime::archive::index::TarIndex;
use coracle_runtime::archive::oci::{
    DOCKER_MANIFEST_FILE, Descriptor, LAYOUT_INDEX, LAYOUT_MARKER, MAX_MANIFEST, ManifestDocument, OCI_INDEX, Platform,
    blob_path, parse_json,
};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use super::docker_archive::DockerArchive;
use super::error::escaped;
use super::resolve::DocumentKind;
use super::{
    DocumentSource, ImageSource, LayerBlob, Result, RootDocument, Scratch, SourceError, SourceImage, SourceLayer,
    resolve_image,
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

    /// The descriptors that the name stands for, each once: several are of one image for several platforms.
    fn select(&self, manifests: &[Descriptor]) -> Result<Vec<Descriptor>> {
        let Some(name) = &self.name else { return Ok(distinct(manifests.iter())) };
        let named = named(manifests, name);
        if !named.is_empty() {
            return Ok(named);
        }
        match distinct(manifests.iter()) {
            single if single.len() == 1 => Ok(single),
            _ => Err(SourceError::NotFound { place: "the image layout".into(), what: name.clone() }),
        }
    }
}

/// The descriptors of a digest or of a name. A bare tag is compared only where no entry has the whole name, and only with
/// entries whose image has no other name: the same tag may stand for another repository's image.
fn named(manifests: &[Descriptor], name: &str) -> Vec<Descriptor> {
    if let Some((_, digest)) = name.split_once('@') {
        return distinct(manifests.iter().filter(|it| it.digest.as_str() == digest));
    }
    let whole = distinct(manifests.iter().filter(|it| it.has_name(name)));
    let tag = name.rsplit_once(':').map(|it| it.1).filter(|it| !it.contains('/'));
    match tag {
        Some(tag) if whole.is_empty() => distinct(manifests.iter().filter(|it| it.has_only_tag(tag))),
        _ => whole,
    }
}

/// The descriptors without those of a digest that came before: an image has an entry for each of its names.
fn distinct<'a>(descriptors: impl Iterator<Item = &'a Descriptor>) -> Vec<Descriptor> {
    let mut seen = HashSet::new();
    descriptors.filter(|it| seen.insert(it.digest.as_str())).cloned().collect()
}

/// The index with these entries alone: the platform is chosen among them.
fn index_of(index: &[u8], selected: &[Descriptor]) -> Result<Vec<u8>> {
    let mut index: serde_json::Value = parse_json("index", index)?;
    let mut wanted: HashSet<_> = selected.iter().map(|it| it.digest.as_str()).collect();
    if let Some(entries) = index.get_mut("manifests").and_then(serde_json::Value::as_array_mut) {
        entries.retain(|it| it["digest"].as_str().is_some_and(|digest| wanted.remove(digest)));
    }
    serde_json::to_vec(&index).map_err(|err| SourceError::malformed("index", &err))
}

impl LayoutFiles {
    /// Opens a file and tells its size. Links within the layout are followed, others are not.
    fn open(&self, path: &str) -> Result<(Box<dyn Read + Send>, u64)> {
        let absent = || SourceError::NotFound { place: "the image layout".into(), what: escaped(path) };
        match self {
            Self::Archive(index) => {
                let range = index.find(path).ok_or_else(absent)?;
                let size = range.size();
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
    let large = || SourceError::too_large(format!("file `{}`", escaped(path)), limit);
    if size > limit {
        return Err(large());
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(SourceError::io("cannot read an image"))?;
    if bytes.len() as u64 > limit { Err(large()) } else { Ok(bytes) }
}

#[async_trait]
impl DocumentSource for LayoutSource {
    async fn root(&self) -> Result<RootDocument> {
        let source = self.clone();
        unblock(move || {
            let index = source.files.read(LAYOUT_INDEX, MAX_MANIFEST)?;
            let ManifestDocument::Index(manifests) = ManifestDocument::parse(&index, OCI_INDEX)? else {
                return Err(SourceError::malformed("index", &"it is a manifest"));
            };
            let selected = source.select(&manifests)?;
            let [only] = selected.as_slice() else {
                let bytes = index_of(&index, &selected)?;
                return Ok(RootDocument { bytes, media_type: OCI_INDEX.into(), digest: None });
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
/// [`SourceError::Document`] for another archive.
pub(crate) fn open_archive(file: File, name: Option<String>, scratch: &Scratch) -> Result<Arc<dyn ImageSource>> {
    let index = TarIndex::read(uncompressed(file, scratch)?)?;
    if index.find(LAYOUT_INDEX).is_some() && index.find(LAYOUT_MARKER).is_some() {
        return Ok(Arc::new(LayoutSource { files: LayoutFiles::Archive(index), name }));
    }
    if index.find(DOCKER_MANIFEST_FILE).is_some() {
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
        return Err(SourceError::too_large("archive", MAX_ARCHIVE));
    }
    Ok(whole.file)
}

/// Runs file operations on another thread.
pub(crate) async fn unblock<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    blocking("read an image", move || Ok(work())).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of an index: the image's digit, its name and its tag.
    fn entry(digit: char, name: &str, tag: &str) -> Descriptor {
        let mut annotations = serde_json::Map::new();
        for (key, value) in [("io.containerd.image.name", name), ("org.opencontainers.image.ref.name", tag)] {
            annotations.extend((!value.is_empty()).then(|| (key.to_owned(), value.into())));
        }
        let digest = format!("sha256:{}", digit.to_string().repeat(64));
        let entry = serde_json::json!({ "digest": digest, "size": 1, "annotations": annotations });
        serde_json::from_value(entry).unwrap()
    }

    fn selected(name: &str, entries: &[(char, &str, &str)]) -> String {
        let entries: Vec<_> = entries.iter().map(|(digit, name, tag)| entry(*digit, name, tag)).collect();
        let source = LayoutSource {
            files: LayoutFiles::Directory(Arc::new(tempfile::tempfile().unwrap().into())),
            name: Some(name.into()),
        };
        let found = source.select(&entries).unwrap_or_default();
        found.iter().filter_map(|it| it.digest.hex().chars().next()).collect()
    }

    #[test]
    fn a_name_selects_its_image_alone() {
        let two = [('1', "docker.io/library/a:1", "1"), ('2', "docker.io/library/b:1", "1")];
        assert_eq!(
            (selected("a:1", &two), selected("b:1", &two), selected("c:1", &two)),
            ("1".into(), "2".into(), String::new())
        );
        // One image with two names of one tag.
        let one = [('1', "docker.io/library/a:1", "1"), ('1', "docker.io/library/b:1", "1")];
        assert_eq!(
            (selected("a:1", &one), selected("b:1", &one), selected("c:2", &one)),
            ("1".into(), "1".into(), "1".into())
        );
        // Layouts whose entries have tags alone, and one image for two platforms.
        let tags = [('1', "", "1"), ('2', "", "2"), ('3', "", "2")];
        assert_eq!(
            (selected("x:1", &tags), selected("x:2", &tags), selected("x:3", &tags)),
            ("1".into(), "23".into(), String::new())
        );
        let digest = format!("x@sha256:{}", "2".repeat(64));
        assert_eq!(selected(&digest, &tags), "2");
    }

    #[test]
    fn the_platform_is_chosen_among_the_selected_entries() {
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": [
            { "digest": format!("sha256:{}", "1".repeat(64)), "size": 1 },
            { "digest": format!("sha256:{}", "2".repeat(64)), "size": 1 },
            { "digest": format!("sha256:{}", "2".repeat(64)), "size": 1 },
        ]});
        let reduced = index_of(index.to_string().as_bytes(), &[entry('2', "", "")]).unwrap();
        let reduced: serde_json::Value = serde_json::from_slice(&reduced).unwrap();
        assert_eq!(reduced["manifests"], serde_json::json!([index["manifests"][1]]));
        assert_eq!(reduced["schemaVersion"], 2);
    }
}
