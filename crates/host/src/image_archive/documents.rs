//! From the documents of an archive to its image.

use std::collections::HashSet;
use std::io::Read as _;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::{ArchiveLayer, ImageArchive, ImageArchiveError, LayerEncoding, Result, architecture};
use crate::tar_index::{FileSpan, TarIndex};

/// The file that marks a layout.
pub(super) const LAYOUT: &str = "oci-layout";

/// Bytes of one document.
const MAX_DOCUMENT: u64 = 8 << 20;

/// Layers of one image.
const MAX_LAYERS: usize = 512;

/// Indexes within indexes.
const MAX_DEPTH: usize = 3;

/// Fields of the image specification. Docker adds what its container was made with, labels among it.
const CONFIGURATION_FIELDS: [&str; 10] =
    ["created", "author", "architecture", "os", "os.version", "os.features", "variant", "config", "rootfs", "history"];

const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutMarker {
    image_layout_version: String,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    size: u64,
    platform: Option<Platform>,
}

#[derive(Clone, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    layers: Vec<String>,
}

impl Platform {
    fn is_this_machine(&self) -> bool {
        self.os == "linux" && self.architecture == architecture()
    }
}

impl Descriptor {
    /// SHA-256 in hex: other algorithms are not in use.
    fn hex(&self) -> Result<&str> {
        hex_of(&self.digest)
    }

    fn is_index(&self) -> bool {
        self.media_type == OCI_INDEX || self.media_type == DOCKER_INDEX
    }

    fn encoding(&self) -> Result<LayerEncoding> {
        match self.media_type.as_str() {
            "application/vnd.oci.image.layer.v1.tar" | "application/vnd.docker.image.rootfs.diff.tar" => {
                Ok(LayerEncoding::Plain)
            }
            "application/vnd.oci.image.layer.v1.tar+gzip" | "application/vnd.docker.image.rootfs.diff.tar.gzip" => {
                Ok(LayerEncoding::Gzip)
            }
            "application/vnd.oci.image.layer.v1.tar+zstd" => Ok(LayerEncoding::Zstd),
            other => Err(malformed("manifest", format_args!("a layer of type `{}`", other.escape_debug()))),
        }
    }
}

impl ImageArchive {
    pub(super) fn from_layout(index: &TarIndex) -> Result<Self> {
        let not_oci = |why: &str| ImageArchiveError::NotOci(why.into());
        let marker = index.find(LAYOUT).ok_or_else(|| not_oci("it has no `oci-layout`"))?;
        let marker: LayoutMarker = parse("oci-layout", &document(marker)?)?;
        if marker.image_layout_version != "1.0.0" {
            return Err(not_oci("its layout has another version than 1.0.0"));
        }
        let root = index.find("index.json").ok_or_else(|| not_oci("it has no `index.json`"))?;
        let root: Index = parse("index", &document(root)?)?;
        let chosen = choose(index, root)?;
        let manifest: Manifest = parse("manifest", &blob_document(index, &chosen)?)?;
        let configuration = blob_document(index, &manifest.config)?;
        let layer = |it: &Descriptor| -> Result<ArchiveLayer> {
            Ok(ArchiveLayer { content: blob(index, it)?, digest: it.hex()?.to_owned(), encoding: it.encoding()? })
        };
        let layers = manifest.layers.iter().take(MAX_LAYERS + 1).map(layer).collect::<Result<_>>()?;
        Self::checked(&configuration, layers)
    }

    /// The one image of an archive without a layout. The digest of a layer is that of its uncompressed tar.
    pub(super) fn from_saved(index: &TarIndex) -> Result<Self> {
        let manifest = index.find("manifest.json");
        let manifest = manifest.ok_or_else(|| ImageArchiveError::NotOci("it has no manifest".into()))?;
        let images: Vec<SavedImage> = parse("manifest", &document(manifest)?)?;
        let [image] = images.as_slice() else { return Err(ImageArchiveError::Several(images.len())) };
        let find = |path: &String| {
            index.find(path).ok_or_else(|| malformed("manifest", format_args!("no `{}`", path.escape_debug())))
        };
        let configuration = document(find(&image.config)?)?;
        let parsed: Map<String, Value> = parse("configuration", &configuration)?;
        let layers = image.layers.iter().zip(diff_ids(&parsed)?);
        let layer = |(path, digest): (&String, String)| {
            Ok(ArchiveLayer { content: find(path)?, digest, encoding: LayerEncoding::Plain })
        };
        Self::checked(&configuration, layers.map(layer).collect::<Result<_>>()?)
    }

    fn checked(configuration: &[u8], layers: Vec<ArchiveLayer>) -> Result<Self> {
        let mut configuration: Map<String, Value> = parse("configuration", configuration)?;
        configuration.retain(|name, _| CONFIGURATION_FIELDS.contains(&name.as_str()));
        let text = |name: &str| configuration.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let platform = Platform { architecture: text("architecture"), os: text("os") };
        if !platform.is_this_machine() {
            return Err(other_platform(std::iter::once(&platform)));
        }
        if layers.len() > MAX_LAYERS {
            return Err(malformed("manifest", format_args!("more than {MAX_LAYERS} layers")));
        }
        if diff_ids(&configuration)?.len() != layers.len() {
            return Err(malformed("configuration", "it does not name each layer"));
        }
        Ok(Self { configuration, layers })
    }
}

/// The one image for this machine. Manifests that say no platform may be.
fn choose(index: &TarIndex, root: Index) -> Result<Descriptor> {
    let (mut all, mut level) = (Vec::new(), root.manifests);
    for _ in 0..MAX_DEPTH {
        let (indexes, manifests): (Vec<_>, Vec<_>) = level.into_iter().partition(Descriptor::is_index);
        all.extend(manifests);
        level = Vec::new();
        for it in indexes {
            level.extend(parse::<Index>("index", &blob_document(index, &it)?)?.manifests);
        }
    }
    // An image has an entry for each of its names.
    let mut seen = HashSet::new();
    all.retain(|it| seen.insert(it.digest.clone()));
    let fits = |it: &&Descriptor| it.platform.as_ref().is_none_or(Platform::is_this_machine);
    let fitting: Vec<_> = all.iter().filter(fits).collect();
    match fitting.as_slice() {
        [one] => Ok((*one).clone()),
        [] if all.is_empty() => Err(malformed("index", "it names no image")),
        [] => Err(other_platform(all.iter().filter_map(|it| it.platform.as_ref()))),
        several => Err(ImageArchiveError::Several(several.len())),
    }
}

fn other_platform<'a>(found: impl Iterator<Item = &'a Platform>) -> ImageArchiveError {
    let word = |it: &Platform| format!("{}/{}", it.os, it.architecture).chars().take(60).collect::<String>();
    let found: Vec<_> = found.take(5).map(|it| word(it).escape_debug().to_string()).collect();
    ImageArchiveError::Platform { wanted: architecture(), found: found.join(", ") }
}

fn diff_ids(configuration: &Map<String, Value>) -> Result<Vec<String>> {
    let ids = configuration.get("rootfs").and_then(|it| it.get("diff_ids")).and_then(Value::as_array);
    let ids = ids.ok_or_else(|| malformed("configuration", "it names no layers"))?;
    ids.iter().map(|it| hex_of(it.as_str().unwrap_or_default()).map(str::to_owned)).collect()
}

fn hex_of(digest: &str) -> Result<&str> {
    let hex = digest.strip_prefix("sha256:");
    let is_hex = |it: &&str| it.len() == 64 && it.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
    hex.filter(is_hex).ok_or_else(|| malformed("digest", format_args!("`{}` is no sha256", digest.escape_debug())))
}

/// A blob of the length that its descriptor says.
fn blob(index: &TarIndex, it: &Descriptor) -> Result<FileSpan> {
    let hex = it.hex()?;
    let missing = || malformed("manifest", format_args!("no blob sha256:{hex}"));
    let span = index.find(&format!("blobs/sha256/{hex}")).ok_or_else(missing)?;
    if span.size() != it.size {
        return Err(ImageArchiveError::Damaged(hex.to_owned()));
    }
    Ok(span)
}

/// A blob that is a document, whose content has to be what it is named by.
fn blob_document(index: &TarIndex, it: &Descriptor) -> Result<Vec<u8>> {
    let bytes = document(blob(index, it)?)?;
    if hex::encode(Sha256::digest(&bytes)) == it.hex()? {
        Ok(bytes)
    } else {
        Err(ImageArchiveError::Damaged(it.hex()?.to_owned()))
    }
}

fn document(mut span: FileSpan) -> Result<Vec<u8>> {
    if span.size() > MAX_DOCUMENT {
        return Err(malformed("manifest", format_args!("a document of more than {MAX_DOCUMENT} bytes")));
    }
    let mut bytes = Vec::new();
    span.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|err| malformed(what, err))
}

fn malformed(what: &'static str, why: impl std::fmt::Display) -> ImageArchiveError {
    ImageArchiveError::malformed(what, why)
}
