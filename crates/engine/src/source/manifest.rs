//! Manifests, indexes and descriptors of OCI and of Docker's schema 2. Pure.

use coracle_runtime::ImageRef;
use serde::Deserialize;

use super::{BlobDigest, Platform, Result, SourceError};
use crate::store::DiffId;

/// Bytes of a manifest or an index. Registries take no larger ones.
pub(crate) const MAX_MANIFEST: u64 = 4 << 20;

/// Bytes of an image's configuration.
pub(crate) const MAX_CONFIG: u64 = 8 << 20;

/// Bytes of a layer as it is transferred.
pub(crate) const MAX_LAYER: u64 = 32 << 30;

/// The kernel stacks no more directories in one overlay.
pub(crate) const MAX_LAYERS: usize = 500;

/// Media types of manifests and indexes, as a request accepts them.
pub(crate) const MANIFEST_TYPES: [&str; 4] = [OCI_MANIFEST, DOCKER_MANIFEST, OCI_INDEX, DOCKER_LIST];

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const SCHEMA_ONE: [&str; 2] = [
    "application/vnd.docker.distribution.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
];

const CONFIG_TYPES: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];

const LAYER_TYPES: [&str; 6] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.v1.tar+gzip",
    "application/vnd.oci.image.layer.v1.tar+zstd",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.diff.tar.gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd",
];

const FOREIGN_LAYERS: [&str; 2] =
    ["application/vnd.oci.image.layer.nondistributable.v1.", "application/vnd.docker.image.rootfs.foreign."];

/// A part of an image as another part names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: BlobDigest,
    pub(crate) size: u64,
    pub(crate) platform: Option<Platform>,
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
    #[cfg(test)]
    pub(crate) fn new(media_type: &str, digest: BlobDigest, size: u64) -> Self {
        Self { media_type: media_type.into(), digest, size, platform: None, annotations: None }
    }

    /// Whether an image layout gives it this name, as it is or completed.
    pub(crate) fn has_name(&self, name: &str) -> bool {
        let completed = |it: &str| ImageRef::parse(it).map(|it| it.completed());
        let is_same = |it: &str| matches!((completed(it), completed(name)), (Ok(one), Ok(other)) if one == other);
        let Some(annotations) = &self.annotations else { return false };
        annotations.ref_name.as_deref() == Some(name) || annotations.image_name.as_deref().is_some_and(is_same)
    }

    /// Whether an image layout gives it this tag, and no name of an image.
    pub(crate) fn has_only_tag(&self, tag: &str) -> bool {
        self.annotations.as_ref().is_some_and(|it| it.image_name.is_none() && it.ref_name.as_deref() == Some(tag))
    }

    /// Refuses one that announces more than `limit` bytes.
    pub(crate) fn check_size(&self, what: &str, limit: u64) -> Result<()> {
        if self.size <= limit { Ok(()) } else { Err(SourceError::TooLarge { what: what.into(), limit }) }
    }

    /// Refuses bytes that are not the ones it names.
    pub(crate) fn check(&self, what: &str, bytes: &[u8]) -> Result<()> {
        let found = bytes.len() as u64;
        if found != self.size {
            return Err(SourceError::WrongSize { what: what.into(), expected: self.size, found });
        }
        check_digest(what, &self.digest, bytes)
    }
}

/// Refuses bytes of another digest.
pub(crate) fn check_digest(what: &str, expected: &BlobDigest, bytes: &[u8]) -> Result<()> {
    let found = BlobDigest::from_content(bytes);
    if found == *expected {
        return Ok(());
    }
    Err(SourceError::WrongDigest { what: what.into(), expected: expected.clone(), found })
}

/// A manifest of one image, or the index of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ManifestDocument {
    Manifest(ImageManifest),
    Index(Vec<Descriptor>),
}

/// The parts of one image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageManifest {
    pub(crate) config: Descriptor,
    /// Bottom first.
    pub(crate) layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: u64,
    media_type: Option<String>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    manifests: Option<Vec<Descriptor>>,
    #[serde(rename = "fsLayers")]
    fs_layers: Option<serde::de::IgnoredAny>,
}

impl ManifestDocument {
    /// Reads a document of this media type: the one it was sent with or named by, which must be the one it names itself.
    ///
    /// # Errors
    /// [`SourceError::SchemaOne`], [`SourceError::MediaType`], [`SourceError::ForeignLayer`], [`SourceError::Malformed`],
    /// [`SourceError::TooLarge`].
    pub(crate) fn parse(bytes: &[u8], media_type: &str) -> Result<Self> {
        let media_type = media_type.split(';').next().unwrap_or_default().trim();
        if SCHEMA_ONE.contains(&media_type) {
            return Err(SourceError::SchemaOne);
        }
        let unknown =
            |it: &str| SourceError::MediaType { what: "manifest", media_type: it.chars().take(200).collect() };
        if !MANIFEST_TYPES.contains(&media_type) {
            return Err(unknown(media_type));
        }
        let raw: RawDocument = serde_json::from_slice(bytes).map_err(|err| SourceError::malformed("manifest", &err))?;
        if raw.schema_version == 1 || raw.fs_layers.is_some() {
            return Err(SourceError::SchemaOne);
        }
        match raw.media_type.as_deref() {
            None => {}
            Some(own) if own == media_type => {}
            Some(own) if MANIFEST_TYPES.contains(&own) => {
                return Err(SourceError::malformed(
                    "manifest",
                    &format_args!("it is `{own}` and was sent as `{media_type}`"),
                ));
            }
            Some(other) => return Err(unknown(other)),
        }
        raw.into_document(matches!(media_type, OCI_INDEX | DOCKER_LIST))
    }
}

impl RawDocument {
    /// A document that could be read as both kinds is refused: other tools may have checked the other half.
    fn into_document(self, is_index: bool) -> Result<ManifestDocument> {
        match (self.config, self.layers, self.manifests) {
            (None, None, Some(manifests)) if is_index => Ok(ManifestDocument::Index(manifests)),
            (Some(config), Some(layers), None) if !is_index => {
                let manifest = ImageManifest { config, layers };
                manifest.check()?;
                Ok(ManifestDocument::Manifest(manifest))
            }
            _ => Err(SourceError::malformed("manifest", &"it has not the parts of its media type, and those alone")),
        }
    }
}

impl ImageManifest {
    fn check(&self) -> Result<()> {
        if !CONFIG_TYPES.contains(&self.config.media_type.as_str()) {
            let media_type = self.config.media_type.chars().take(200).collect();
            return Err(SourceError::MediaType { what: "configuration", media_type });
        }
        self.config.check_size("configuration", MAX_CONFIG)?;
        if self.layers.len() > MAX_LAYERS {
            return Err(SourceError::malformed("manifest", &format_args!("it has more than {MAX_LAYERS} layers")));
        }
        self.layers.iter().try_for_each(check_layer)
    }
}

fn check_layer(layer: &Descriptor) -> Result<()> {
    let media_type = layer.media_type.chars().take(200).collect::<String>();
    if FOREIGN_LAYERS.iter().any(|it| media_type.starts_with(it)) {
        return Err(SourceError::ForeignLayer { digest: layer.digest.clone(), media_type });
    }
    if !LAYER_TYPES.contains(&media_type.as_str()) {
        return Err(SourceError::MediaType { what: "layer", media_type });
    }
    layer.check_size(&format!("layer {}", layer.digest), MAX_LAYER)
}

/// The part of an image's configuration that copying it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigurationSummary {
    /// What it runs on.
    pub(crate) platform: Platform,
    /// The digests of the uncompressed layers, bottom first.
    pub(crate) diff_ids: Vec<DiffId>,
}

#[derive(Debug, Deserialize)]
struct RawConfig {
    #[serde(flatten)]
    platform: Platform,
    rootfs: RawRootFs,
}

#[derive(Debug, Deserialize)]
struct RawRootFs {
    diff_ids: Vec<DiffId>,
}

impl ConfigurationSummary {
    /// Reads a configuration. `count` is the number of the image's blobs.
    ///
    /// # Errors
    /// [`SourceError::Malformed`].
    pub(crate) fn parse(config: &[u8], count: usize) -> Result<Self> {
        let raw: RawConfig =
            serde_json::from_slice(config).map_err(|err| SourceError::malformed("configuration", &err))?;
        let diff_ids = raw.rootfs.diff_ids;
        if diff_ids.len() != count || count == 0 {
            let why = format!("it names {} layers, and its manifest {count}", diff_ids.len());
            return Err(SourceError::malformed("configuration", &why));
        }
        Ok(Self { platform: raw.platform, diff_ids })
    }
}

#[cfg(test)]
mod tests;
