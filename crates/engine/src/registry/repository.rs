//! A registry as the source of an image.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_archive::oci::{
    DocumentKind, ImageResolver, MANIFEST_TYPES, MAX_MANIFEST, Platform, ResolvedImage, ResolvedLayer,
};
use coracle_types::ImageRef;
use hyper::header::{CONTENT_TYPE, HeaderValue};

use super::client::{RegistryRequest, RegistryResponse, RepositoryClient};
use super::download::download;
use super::http::Timeouts;
use super::name::RepositoryName;
use crate::blocking::blocking;
use crate::options::RegistryOptions;
use crate::source::{BlobDigest, ImageSource, LayerBlob, Result, Scratch, SourceError};

/// How registries are reached.
#[derive(Clone, Debug)]
pub(crate) struct RegistryAccess {
    /// The user's home, which has the credentials.
    pub(crate) home: PathBuf,
    pub(crate) options: RegistryOptions,
    pub(crate) timeouts: Timeouts,
}

/// An image in a registry.
#[derive(Clone, Debug)]
pub(crate) struct RegistrySource(Arc<RepositoryClient>);

impl RegistrySource {
    /// Prepares the client. Sends nothing yet.
    ///
    /// # Errors
    /// [`SourceError::NotFound`] for an id instead of a name, [`SourceError::Certificates`].
    pub(crate) async fn open(image: &ImageRef, access: RegistryAccess) -> Result<Self> {
        let name = RepositoryName::from_image(image)?;
        let RegistryAccess { home, options, timeouts } = access;
        let opened = blocking("open a registry", move || Ok(RepositoryClient::new(name, &home, &options, timeouts)));
        Ok(Self(Arc::new(opened.await??)))
    }

    /// Fetches a document, up to a limit.
    async fn get(&self, request: RegistryRequest<'_>, limit: DocumentLimit) -> Result<ReceivedDocument> {
        let RegistryResponse { headers, body, host, http, .. } = self.0.get(&request).await?;
        let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).map(str::to_owned);
        let bytes = http.read_body(&host, limit.what, body, limit.bytes).await?;
        let media_type = text(CONTENT_TYPE.as_str()).unwrap_or_default();
        Ok(ReceivedDocument { bytes, media_type, announced: text("docker-content-digest") })
    }
}

/// The maximum size of a document.
struct DocumentLimit {
    what: &'static str,
    bytes: u64,
}

struct ReceivedDocument {
    bytes: Vec<u8>,
    media_type: String,
    /// The digest that the registry's header names.
    announced: Option<String>,
}

fn accepted() -> Option<HeaderValue> {
    HeaderValue::from_str(&MANIFEST_TYPES.join(", ")).ok()
}

#[async_trait]
impl ImageSource for RegistrySource {
    async fn resolve(&self, platform: &Platform) -> Result<ResolvedImage> {
        let name = &self.0.name;
        let request = RegistryRequest { kind: "manifests", reference: &name.reference, accept: accepted(), from: 0 };
        let limit = DocumentLimit { what: "manifest", bytes: MAX_MANIFEST };
        let ReceivedDocument { bytes, media_type, announced } = self.get(request, limit).await?;
        let (digest, announced) = (BlobDigest::from_content(&bytes), announced.as_deref().and_then(BlobDigest::parse));
        for expected in name.digest.iter().chain(&announced) {
            expected.check("manifest", &digest)?;
        }
        let mut resolver = ImageResolver::from_document(platform, &bytes, &media_type)?;
        loop {
            let (wanted, kind) = resolver.wanted();
            let (kind, accept, what) = match kind {
                DocumentKind::Manifest => ("manifests", accepted(), "manifest"),
                DocumentKind::Configuration => ("blobs", None, "configuration"),
            };
            let request = RegistryRequest { kind, reference: wanted.digest.as_str(), accept, from: 0 };
            let received = self.get(request, DocumentLimit { what, bytes: wanted.size }).await?;
            if let Some(image) = resolver.accept(received.bytes)? {
                return Ok(ResolvedImage { digest: Some(digest), ..image });
            }
        }
    }

    async fn fetch_layer(&self, layer: &ResolvedLayer, scratch: &Scratch) -> Result<LayerBlob> {
        let missing = || SourceError::malformed("manifest", &"a layer has no blob");
        download(&self.0, layer.blob().ok_or_else(missing)?, scratch).await
    }
}
