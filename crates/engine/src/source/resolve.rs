//! From a name to the manifest and the configuration for this machine.

use async_trait::async_trait;
use coracle_runtime::archive::oci::{
    ConfigurationSummary, Descriptor, ImageManifest, MAX_CONFIG, MAX_MANIFEST, ManifestDocument, Platform,
};

use super::{BlobDigest, Result, SourceError, SourceImage, SourceLayer};

/// Indexes may name indexes; no tool makes more than two levels.
const MAX_DEPTH: usize = 3;

/// Documents by digest: a registry's repository, or an image layout.
#[async_trait]
pub(crate) trait DocumentSource: Send + Sync {
    /// The manifest or index that the image's name leads to.
    async fn root(&self) -> Result<RootDocument>;

    /// A manifest, an index or a configuration. The caller has checked the announced size, and checks the bytes.
    async fn document(&self, descriptor: &Descriptor, what: DocumentKind) -> Result<Vec<u8>>;
}

/// The kinds of documents, which registries keep in different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentKind {
    Manifest,
    Configuration,
}

impl DocumentKind {
    fn word(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Configuration => "configuration",
        }
    }

    fn limit(self) -> u64 {
        match self {
            Self::Manifest => MAX_MANIFEST,
            Self::Configuration => MAX_CONFIG,
        }
    }
}

/// The document that a name leads to.
#[derive(Clone, Debug)]
pub(crate) struct RootDocument {
    pub(crate) bytes: Vec<u8>,
    pub(crate) media_type: String,
    /// What the image is known by at its source.
    pub(crate) digest: Option<BlobDigest>,
}

/// Resolves the image for a platform.
///
/// # Errors
/// Any of a document that is refused: see [`SourceError`].
pub(crate) async fn resolve_image(content: &dyn DocumentSource, platform: &Platform) -> Result<SourceImage> {
    let root = content.root().await?;
    let manifest = resolve_manifest(content, &root, platform).await?;
    let configuration = document(content, &manifest.config, DocumentKind::Configuration).await?;
    let summary = ConfigurationSummary::parse(&configuration, manifest.layers.len())?;
    platform.check(&summary.platform)?;
    let layers = summary.diff_ids.into_iter().zip(manifest.layers);
    let layers = layers.map(|(diff_id, blob)| SourceLayer { diff_id, blob: Some(blob) }).collect();
    Ok(SourceImage { configuration, layers, digest: root.digest })
}

async fn resolve_manifest(
    content: &dyn DocumentSource,
    root: &RootDocument,
    platform: &Platform,
) -> Result<ImageManifest> {
    let mut found = ManifestDocument::parse(&root.bytes, &root.media_type)?;
    for _ in 0..MAX_DEPTH {
        let manifests = match found {
            ManifestDocument::Manifest(manifest) => return Ok(manifest),
            ManifestDocument::Index(manifests) => manifests,
        };
        let chosen = platform.choose(&manifests)?;
        let bytes = document(content, chosen, DocumentKind::Manifest).await?;
        found = ManifestDocument::parse(&bytes, &chosen.media_type)?;
    }
    Err(SourceError::malformed("index", &"it names an index of indexes of indexes"))
}

async fn document(content: &dyn DocumentSource, descriptor: &Descriptor, kind: DocumentKind) -> Result<Vec<u8>> {
    descriptor.check_size(kind.word(), kind.limit())?;
    let bytes = content.document(descriptor, kind).await?;
    descriptor.check(kind.word(), &bytes)?;
    Ok(bytes)
}
