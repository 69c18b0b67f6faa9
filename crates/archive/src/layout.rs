//! Images in an OCI layout or an archive of `docker save`, in a directory or a file.

use std::collections::HashSet;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt as _};
use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::index::TarIndex;
use crate::oci::{
    Configuration, DOCKER_MANIFEST_FILE, Descriptor, ImageError, ImageResolver, LAYOUT_INDEX, LAYOUT_MARKER,
    LayerContent, MAX_CONFIG, MAX_LAYERS, MAX_MANIFEST, ManifestDocument, OCI_INDEX, Platform, ResolvedImage,
    ResolvedLayer, Result, SavedImage, blob_path, parse_json,
};

/// A collection of images with names.
#[derive(Clone, Debug)]
pub struct ImageSet {
    files: ImageFiles,
    is_layout: bool,
}

#[derive(Clone, Debug)]
enum ImageFiles {
    Directory(Arc<Dir>),
    Archive(TarIndex),
}

impl ImageSet {
    /// Opens a layout in a directory.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_directory(dir: &Path) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(dir, ambient_authority())?;
        Ok(Self { files: ImageFiles::Directory(Arc::new(dir)), is_layout: true })
    }

    /// Opens an archive, whose kind is detected by its content.
    ///
    /// # Errors
    /// [`ImageError::NotImages`] for another archive.
    pub fn from_index(index: TarIndex) -> Result<Self> {
        let is_layout = index.find(LAYOUT_INDEX).is_some() && index.find(LAYOUT_MARKER).is_some();
        if !is_layout && index.find(DOCKER_MANIFEST_FILE).is_none() {
            let why = "it has neither `index.json` with `oci-layout` nor `manifest.json`";
            return Err(ImageError::NotImages(why.into()));
        }
        Ok(Self { files: ImageFiles::Archive(index), is_layout })
    }

    /// Finds the image of that name for a platform. Without a name, it has to be the only one. Blocks.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], [`ImageError::Several`], and errors of a refused image.
    pub fn image(&self, name: Option<&str>, platform: &Platform) -> Result<ResolvedImage> {
        if self.is_layout { self.image_of_layout(name, platform) } else { self.saved_image(name, platform) }
    }

    /// Opens a file, and returns its size. Follows only links within the layout.
    ///
    /// # Errors
    /// [`ImageError::NotFound`], [`ImageError::Io`].
    pub fn open(&self, path: &str) -> Result<(Box<dyn Read + Send>, u64)> {
        match &self.files {
            ImageFiles::Archive(index) => {
                let content = index.find(path).ok_or_else(|| self.absent(path))?;
                let size = content.size();
                Ok((Box::new(content), size))
            }
            ImageFiles::Directory(dir) => {
                // Opening a pipe or a device must not block.
                let flags = OFlags::NONBLOCK.bits().cast_signed();
                let file = dir.open_with(path, OpenOptions::new().read(true).custom_flags(flags));
                let file = file.map_err(|err| if leads_nowhere(&err) { self.absent(path) } else { err.into() })?;
                let metadata = file.metadata()?;
                if metadata.is_file() { Ok((Box::new(file), metadata.len())) } else { Err(self.absent(path)) }
            }
        }
    }

    fn image_of_layout(&self, name: Option<&str>, platform: &Platform) -> Result<ResolvedImage> {
        let index = ManifestDocument::parse(&self.read(LAYOUT_INDEX, MAX_MANIFEST)?, OCI_INDEX)?;
        let ManifestDocument::Index(manifests) = index else {
            return Err(ImageError::malformed("index", &"it is a manifest"));
        };
        let selected = self.select(&manifests, name)?;
        let chosen = only_for(platform, &selected)?;
        let mut resolver = ImageResolver::new(platform, chosen.clone())?;
        loop {
            let (wanted, kind) = resolver.wanted();
            let (file, size) = self.open(&blob_path(&wanted.digest))?;
            wanted.check_length(kind.name(), size)?;
            let mut bytes = Vec::new();
            file.take(size).read_to_end(&mut bytes)?;
            if let Some(image) = resolver.accept(bytes)? {
                let digest = (selected.len() == 1).then(|| chosen.digest.clone());
                return Ok(ResolvedImage { digest, ..image });
            }
        }
    }

    /// Returns the descriptors with that name, without duplicates: there may be one per platform.
    fn select(&self, manifests: &[Descriptor], name: Option<&str>) -> Result<Vec<Descriptor>> {
        let Some(name) = name else { return Ok(distinct(manifests.iter())) };
        let named = named(manifests, name);
        if !named.is_empty() {
            return Ok(named);
        }
        match distinct(manifests.iter()) {
            single if single.len() == 1 => Ok(single),
            _ => Err(self.absent(name)),
        }
    }

    fn saved_image(&self, name: Option<&str>, platform: &Platform) -> Result<ResolvedImage> {
        let mut images: Vec<SavedImage> = parse_json("manifest", &self.read(DOCKER_MANIFEST_FILE, MAX_MANIFEST)?)?;
        let is_named = |image: &SavedImage| image.repo_tags.iter().flatten().any(|tag| Some(tag.as_str()) == name);
        let at = match (images.iter().position(is_named), name) {
            (Some(at), _) => at,
            (None, _) if images.len() == 1 => 0,
            (None, Some(name)) => return Err(self.absent(name)),
            (None, None) => return Err(ImageError::Several(images.len())),
        };
        let image = images.swap_remove(at);
        if image.layers.len() > MAX_LAYERS {
            return Err(ImageError::malformed("manifest", &format_args!("it has more than {MAX_LAYERS} layers")));
        }
        let bytes = self.read(&image.config, MAX_CONFIG)?;
        let configuration = Configuration::parse(&bytes)?;
        configuration.check_layers(image.layers.len())?;
        platform.check(&configuration.platform)?;
        let layers = configuration.rootfs.diff_ids.into_iter().zip(image.layers);
        let layers = layers.map(|(diff_id, path)| ResolvedLayer { diff_id, content: LayerContent::File(path) });
        Ok(ResolvedImage { configuration: bytes, layers: layers.collect(), digest: None })
    }

    /// Reads a small file.
    fn read(&self, path: &str, limit: u64) -> Result<Vec<u8>> {
        let (file, size) = self.open(path)?;
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if size > limit || bytes.len() as u64 > limit {
            let what = format!("file `{}`", escaped(path));
            return Err(ImageError::TooLarge { what, limit });
        }
        Ok(bytes)
    }

    fn absent(&self, what: &str) -> ImageError {
        let place = if self.is_layout { "the image layout" } else { "the archive" };
        ImageError::NotFound { place, what: escaped(what) }
    }
}

/// Whether an error means a link that leads out of the layout, which `cap-std` reports without a system error.
fn leads_nowhere(err: &io::Error) -> bool {
    let known = err.raw_os_error().map(Errno::from_raw_os_error);
    known.is_none_or(|errno| matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// Escapes and shortens untrusted text for a message.
fn escaped(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}

/// Returns the best image for a platform, if there is exactly one. An entry without a platform may be for any.
fn only_for<'a>(platform: &Platform, selected: &'a [Descriptor]) -> Result<&'a Descriptor> {
    let rank = |entry: &Descriptor| entry.platform.as_ref().map(|its| platform.rank(its));
    let best = selected.iter().filter_map(|entry| rank(entry).flatten()).min();
    let fits = |entry: &&Descriptor| rank(entry).is_none_or(|rank| rank.is_some() && rank == best);
    match selected.iter().filter(fits).collect::<Vec<_>>().as_slice() {
        [one] => Ok(one),
        [] if selected.is_empty() => Err(ImageError::malformed("index", &"it names no image")),
        [] => Err(platform.unavailable(selected)),
        several => Err(ImageError::Several(several.len())),
    }
}

/// Returns the descriptors with a digest or a name. A bare tag is compared only if no entry has the whole name, and
/// only with entries without another name: the same tag may belong to another repository's image.
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

/// Removes duplicates by digest: an image has an entry for each of its names.
fn distinct<'a>(descriptors: impl Iterator<Item = &'a Descriptor>) -> Vec<Descriptor> {
    let mut seen = HashSet::new();
    descriptors.filter(|it| seen.insert(it.digest.as_str())).cloned().collect()
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
        let images = ImageSet::open_directory(Path::new("/")).unwrap();
        let found = images.select(&entries, Some(name)).unwrap_or_default();
        found.iter().filter_map(|it| it.digest.hex().chars().next()).collect()
    }

    #[test]
    fn a_name_selects_only_its_image() {
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
        // Layouts whose entries only have tags, and one image for two platforms.
        let tags = [('1', "", "1"), ('2', "", "2"), ('3', "", "2")];
        assert_eq!(
            (selected("x:1", &tags), selected("x:2", &tags), selected("x:3", &tags)),
            ("1".into(), "23".into(), String::new())
        );
        let digest = format!("x@sha256:{}", "2".repeat(64));
        assert_eq!(selected(&digest, &tags), "2");
    }

    #[test]
    fn one_image_is_chosen_for_a_platform_or_none() {
        let own = Platform { os: "linux".into(), architecture: "arm64".into(), variant: "v8".into() };
        let chosen = |platforms: &[(char, &str)]| {
            let described = |(digit, architecture): &(char, &str)| {
                let platform =
                    Platform { os: "linux".into(), architecture: (*architecture).into(), ..Platform::default() };
                let mut described = entry(*digit, "", "");
                described.platform = (!architecture.is_empty()).then_some(platform);
                described
            };
            let entries: Vec<_> = platforms.iter().map(described).collect();
            only_for(&own, &entries).map(|it| it.digest.hex()[..1].to_owned()).map_err(|err| err.to_string())
        };
        assert_eq!(chosen(&[('1', "amd64"), ('2', "arm64")]), Ok("2".into()));
        assert_eq!(chosen(&[('1', "")]), Ok("1".into()));
        for refused in [&[][..], &[('1', "amd64")], &[('1', ""), ('2', "arm64")], &[('1', ""), ('2', "")]] {
            assert!(chosen(refused).is_err(), "{refused:?}");
        }
    }
}
