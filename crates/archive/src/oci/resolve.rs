//! Resolves the first document of an image to its configuration and layers.

use super::{
    Configuration, Descriptor, ImageError, ImageManifest, MAX_CONFIG, MAX_MANIFEST, ManifestDocument, Platform, Result,
    blob_path,
};
use crate::Sha256Digest;

/// Maximum depth of indexes; no tool creates more than two levels.
const MAX_DEPTH: usize = 3;

/// An image as its documents describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedImage {
    /// The configuration, byte for byte. It is verified.
    pub configuration: Vec<u8>,
    /// Bottom first.
    pub layers: Vec<ResolvedLayer>,
    /// Digest of the manifest or index that the image's name refers to, if there is one.
    pub digest: Option<Sha256Digest>,
}

/// A layer of such an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedLayer {
    /// The digest of its uncompressed content.
    pub diff_id: Sha256Digest,
    /// The location of its archive.
    pub content: LayerContent,
}

/// The location of a layer's archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerContent {
    /// A blob, which has to match its descriptor.
    Blob(Descriptor),
    /// A file of an archive of `docker save`. Only the digest of its uncompressed content is known.
    File(String),
}

impl ResolvedLayer {
    /// The blob, if the layer is one.
    #[must_use]
    pub fn blob(&self) -> Option<&Descriptor> {
        if let LayerContent::Blob(blob) = &self.content { Some(blob) } else { None }
    }

    /// Its path in an archive or a layout.
    #[must_use]
    pub fn path(&self) -> String {
        match &self.content {
            LayerContent::Blob(blob) => blob_path(&blob.digest),
            LayerContent::File(path) => path.clone(),
        }
    }
}

/// The kinds of documents, for which registries have different endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    /// A manifest or an index.
    Manifest,
    /// The configuration of an image.
    Configuration,
}

impl DocumentKind {
    pub(crate) fn name(self) -> &'static str {
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

/// Resolves the image for one platform. It requests one document after the other, and does no I/O itself.
#[derive(Debug)]
pub struct ImageResolver<'a> {
    platform: &'a Platform,
    wanted: Descriptor,
    manifest: Option<ImageManifest>,
    depth: usize,
}

impl<'a> ImageResolver<'a> {
    /// Starts with a descriptor.
    ///
    /// # Errors
    /// [`ImageError::TooLarge`].
    pub fn new(platform: &'a Platform, wanted: Descriptor) -> Result<Self> {
        Self { platform, wanted, manifest: None, depth: 0 }.checked()
    }

    /// Starts with a document of this media type.
    ///
    /// # Errors
    /// [`ImageError`], if it is refused.
    pub fn from_document(platform: &'a Platform, bytes: &[u8], media_type: &str) -> Result<Self> {
        Self::after(platform, ManifestDocument::parse(bytes, media_type)?, 0)
    }

    fn after(platform: &'a Platform, document: ManifestDocument, depth: usize) -> Result<Self> {
        let (wanted, manifest) = match document {
            ManifestDocument::Manifest(manifest) => (manifest.config.clone(), Some(manifest)),
            ManifestDocument::Index(_) if depth == MAX_DEPTH => {
                return Err(ImageError::malformed("index", &"it names an index of indexes of indexes"));
            }
            ManifestDocument::Index(manifests) => (platform.choose(&manifests)?.clone(), None),
        };
        Self { platform, wanted, manifest, depth }.checked()
    }

    fn checked(self) -> Result<Self> {
        let (wanted, kind) = self.wanted();
        wanted.check_size(kind.name(), kind.limit())?;
        Ok(self)
    }

    /// The document that [`accept`](Self::accept) expects. Its announced size is within the limits.
    #[must_use]
    pub fn wanted(&self) -> (&Descriptor, DocumentKind) {
        let is_configuration = self.manifest.is_some();
        (&self.wanted, if is_configuration { DocumentKind::Configuration } else { DocumentKind::Manifest })
    }

    /// Processes the expected document, and returns the image if it was the last one.
    ///
    /// # Errors
    /// [`ImageError`], if it does not match, or is refused.
    pub fn accept(&mut self, bytes: Vec<u8>) -> Result<Option<ResolvedImage>> {
        let (wanted, kind) = self.wanted();
        wanted.check(kind.name(), &bytes)?;
        let Some(manifest) = self.manifest.take() else {
            let document = ManifestDocument::parse(&bytes, &self.wanted.media_type)?;
            *self = Self::after(self.platform, document, self.depth + 1)?;
            return Ok(None);
        };
        let configuration = Configuration::parse(&bytes)?;
        configuration.check_layers(manifest.layers.len())?;
        self.platform.check(&configuration.platform)?;
        let layers = configuration.rootfs.diff_ids.into_iter().zip(manifest.layers);
        let layers = layers.map(|(diff_id, blob)| ResolvedLayer { diff_id, content: LayerContent::Blob(blob) });
        Ok(Some(ResolvedImage { configuration: bytes, layers: layers.collect(), digest: None }))
    }
}
