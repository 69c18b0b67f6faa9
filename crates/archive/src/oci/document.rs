//! Manifests, indexes and descriptors of OCI and of Docker's schema 2. Pure.

use std::fs::File;
use std::io::{self, Seek as _};
use std::os::unix::fs::FileExt as _;

use coracle_types::ImageRef;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ImageError, Platform, Result};
use crate::Sha256Digest;

/// Maximum size of a manifest or an index, which registries also use.
pub const MAX_MANIFEST: u64 = 4 << 20;

/// Maximum size of an image's configuration.
pub const MAX_CONFIG: u64 = 8 << 20;

/// Maximum size of a compressed layer.
pub const MAX_LAYER: u64 = 32 << 30;

/// Maximum number of layers: the kernel's limit for one overlay.
pub const MAX_LAYERS: usize = 500;

/// Media types of manifests and indexes for an `Accept` header.
pub const MANIFEST_TYPES: [&str; 4] = [OCI_MANIFEST, DOCKER_MANIFEST, OCI_INDEX, DOCKER_LIST];

/// The media type of an OCI manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The media type of an OCI index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// The media type of an OCI configuration.
pub const OCI_CONFIG: &str = CONFIG_TYPES[0];

const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const SCHEMA_ONE: [&str; 2] = [
    "application/vnd.docker.distribution.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
];

const CONFIG_TYPES: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

/// The compression of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerEncoding {
    /// Not at all.
    Plain,
    /// By gzip.
    Gzip,
    /// By zstd.
    Zstd,
}

impl LayerEncoding {
    const ALL: [(Self, &str, &str); 3] = [
        (Self::Plain, "application/vnd.oci.image.layer.v1.tar", "application/vnd.docker.image.rootfs.diff.tar"),
        (
            Self::Gzip,
            "application/vnd.oci.image.layer.v1.tar+gzip",
            "application/vnd.docker.image.rootfs.diff.tar.gzip",
        ),
        (
            Self::Zstd,
            "application/vnd.oci.image.layer.v1.tar+zstd",
            "application/vnd.docker.image.rootfs.diff.tar.zstd",
        ),
    ];

    /// Returns the encoding of a media type of OCI or Docker. `None` if it is not one of layers.
    #[must_use]
    pub fn from_media_type(media_type: &str) -> Option<Self> {
        let known = Self::ALL.iter().find(|(_, oci, docker)| media_type == *oci || media_type == *docker);
        known.map(|(encoding, ..)| *encoding)
    }

    /// Detects the encoding of a file by its first bytes at the current offset.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn detect(mut file: &File) -> io::Result<Self> {
        let at = file.stream_position()?;
        let mut magic = [0; 4];
        let count = file.read_at(&mut magic, at)?;
        Ok(match &magic[..count] {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] => Self::Zstd,
            // Skippable frames: 0x184D2A50 to 0x184D2A5F.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Self::Zstd,
            _ => Self::Plain,
        })
    }

    /// OCI's media type of such a layer.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

const FOREIGN_LAYERS: [&str; 2] =
    ["application/vnd.oci.image.layer.nondistributable.v1.", "application/vnd.docker.image.rootfs.foreign."];

/// The descriptor of a part of an image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its media type; empty if missing.
    #[serde(default)]
    pub media_type: String,
    /// The digest of its content.
    pub digest: Sha256Digest,
    /// The length of its content.
    pub size: u64,
    /// The platform of an image, if an index has it.
    pub platform: Option<Platform>,
    #[serde(default)]
    annotations: Option<Annotations>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Annotations {
    #[serde(rename = "org.opencontainers.image.ref.name")]
    ref_name: Option<String>,
    #[serde(rename = "io.containerd.image.name")]
    image_name: Option<String>,
}

impl Descriptor {
    /// A descriptor without platform and annotations.
    #[must_use]
    pub fn new(media_type: &str, digest: Sha256Digest, size: u64) -> Self {
        Self { media_type: media_type.into(), digest, size, platform: None, annotations: None }
    }

    /// Whether it names an index, and not the manifest of one image.
    #[must_use]
    pub fn is_index(&self) -> bool {
        is_index(&self.media_type)
    }

    /// Whether an image layout has this name for it, as given or completed.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let completed = |it: &str| ImageRef::parse(it).map(|it| it.completed());
        let is_same = |it: &str| matches!((completed(it), completed(name)), (Ok(one), Ok(other)) if one == other);
        let Some(annotations) = &self.annotations else { return false };
        annotations.ref_name.as_deref() == Some(name) || annotations.image_name.as_deref().is_some_and(is_same)
    }

    /// Whether an image layout has only this tag for it.
    #[must_use]
    pub fn has_only_tag(&self, tag: &str) -> bool {
        self.annotations.as_ref().is_some_and(|it| it.image_name.is_none() && it.ref_name.as_deref() == Some(tag))
    }

    /// Fails if it announces more than `limit` bytes.
    ///
    /// # Errors
    /// [`ImageError::TooLarge`].
    pub fn check_size(&self, what: &str, limit: u64) -> Result<()> {
        if self.size <= limit { Ok(()) } else { Err(ImageError::TooLarge { what: what.into(), limit }) }
    }

    /// Fails if the bytes do not match the descriptor.
    ///
    /// # Errors
    /// [`ImageError::WrongSize`], [`ImageError::WrongDigest`].
    pub fn check(&self, what: &str, bytes: &[u8]) -> Result<()> {
        self.check_found(what, bytes.len() as u64, &Sha256Digest::from_content(bytes))
    }

    /// Fails if size or digest do not match.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn check_found(&self, what: &str, size: u64, digest: &Sha256Digest) -> Result<()> {
        self.check_length(what, size)?;
        self.digest.check(what, digest)
    }

    /// Fails if the size does not match.
    ///
    /// # Errors
    /// [`ImageError::WrongSize`].
    pub fn check_length(&self, what: &str, found: u64) -> Result<()> {
        if found == self.size {
            return Ok(());
        }
        Err(ImageError::WrongSize { what: what.into(), expected: self.size, found })
    }
}

impl Sha256Digest {
    /// Fails if the digest does not match.
    ///
    /// # Errors
    /// [`ImageError::WrongDigest`].
    pub fn check(&self, what: &str, found: &Self) -> Result<()> {
        if found == self {
            return Ok(());
        }
        Err(ImageError::WrongDigest { what: what.into(), expected: self.clone(), found: found.clone() })
    }
}

/// A manifest of one image, or the index of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestDocument {
    /// Of one image.
    Manifest(ImageManifest),
    /// Manifests, or further indexes.
    Index(Vec<Descriptor>),
}

/// The parts of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageManifest {
    /// Its configuration.
    pub config: Descriptor,
    /// The layers, bottom first.
    pub layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: Option<u64>,
    media_type: Option<String>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
    #[serde(rename = "fsLayers")]
    fs_layers: Option<serde::de::IgnoredAny>,
}

impl ManifestDocument {
    /// Parses a document of this media type: the one of the response or the descriptor, which has to equal that in the
    /// document. If neither is given, as in layouts of some tools, its fields decide.
    ///
    /// # Errors
    /// [`ImageError::SchemaOne`], [`ImageError::MediaType`], [`ImageError::ForeignLayer`],
    /// [`ImageError::Malformed`], [`ImageError::TooLarge`].
    pub fn parse(bytes: &[u8], media_type: &str) -> Result<Self> {
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        if !media_type.is_empty() {
            check_manifest_type(media_type)?;
        }
        let raw: RawDocument = parse_json("manifest", bytes)?;
        if raw.schema_version == Some(1) || raw.fs_layers.is_some() {
            return Err(ImageError::SchemaOne);
        }
        let own = raw.media_type.as_deref().unwrap_or_default();
        if !own.is_empty() {
            check_manifest_type(own)?;
        }
        let is_index = match (media_type, own) {
            ("", "") => raw.manifests.is_some(),
            (sent, "") => is_index(sent),
            ("", own) => is_index(own),
            (sent, own) if sent == own => is_index(sent),
            _ => {
                let why = format_args!("it is `{own}` and was sent as `{media_type}`");
                return Err(ImageError::malformed("manifest", &why));
            }
        };
        raw.into_document(is_index)
    }
}

fn is_index(media_type: &str) -> bool {
    matches!(media_type, OCI_INDEX | DOCKER_LIST)
}

fn check_manifest_type(media_type: &str) -> Result<()> {
    if SCHEMA_ONE.contains(&media_type) {
        return Err(ImageError::SchemaOne);
    }
    if MANIFEST_TYPES.contains(&media_type) {
        return Ok(());
    }
    Err(ImageError::MediaType { what: "manifest", media_type: media_type.chars().take(200).collect() })
}

/// Parses a JSON document.
///
/// # Errors
/// [`ImageError::Malformed`].
pub fn parse_json<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|err| ImageError::malformed(what, &err))
}

impl RawDocument {
    /// Refuses a document that is valid as both kinds: other tools may have checked the other half.
    fn into_document(self, is_index: bool) -> Result<ManifestDocument> {
        match (self.config, self.layers, self.manifests) {
            (None, None, Some(manifests)) if is_index => Ok(ManifestDocument::Index(manifests)),
            (Some(config), Some(layers), None) if !is_index => {
                let manifest = ImageManifest { config, layers };
                manifest.check()?;
                Ok(ManifestDocument::Manifest(manifest))
            }
            _ => Err(ImageError::malformed("manifest", &"it has not the parts of its media type, and those alone")),
        }
    }
}

impl ImageManifest {
    fn check(&self) -> Result<()> {
        if !CONFIG_TYPES.contains(&self.config.media_type.as_str()) {
            let media_type = self.config.media_type.chars().take(200).collect();
            return Err(ImageError::MediaType { what: "configuration", media_type });
        }
        self.config.check_size("configuration", MAX_CONFIG)?;
        if self.layers.len() > MAX_LAYERS {
            return Err(ImageError::malformed("manifest", &format_args!("it has more than {MAX_LAYERS} layers")));
        }
        self.layers.iter().try_for_each(check_layer)
    }
}

fn check_layer(layer: &Descriptor) -> Result<()> {
    let media_type = layer.media_type.chars().take(200).collect::<String>();
    if FOREIGN_LAYERS.iter().any(|it| media_type.starts_with(it)) {
        return Err(ImageError::ForeignLayer { digest: layer.digest.clone(), media_type });
    }
    if LayerEncoding::from_media_type(&media_type).is_none() {
        return Err(ImageError::MediaType { what: "layer", media_type });
    }
    layer.check_size(&format!("layer {}", layer.digest), MAX_LAYER)
}

/// An image of `docker save`, by the paths of its archive.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct SavedImage {
    /// The configuration.
    pub config: String,
    /// Its names.
    pub repo_tags: Option<Vec<String>>,
    /// Archives of the layers, bottom first.
    pub layers: Vec<String>,
}

#[cfg(test)]
mod tests;
