//! Registries, asked for what they tell of an image. Layers are the nodes' affair.

mod config;

use std::fs::File;
use std::time::Duration;

use coracle_runtime::{Error, Excerpt, ImageRef, Result};
use futures_util::TryStreamExt as _;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{OciDescriptor, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use tokio::time::{sleep, timeout};
use tokio_util::io::ReaderStream;

pub(crate) use self::config::RegistryImage;
use crate::error::refusal;
use crate::settings::KubeSettings;

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Bytes of one read of a blob.
const PART: usize = 256 << 10;

/// Before each further question to a registry that fails.
const PAUSES: [Duration; 3] = [Duration::from_millis(200), Duration::from_millis(600), Duration::from_secs(2)];

/// Manifest, its digest, configuration, and the digest of the list that the manifest is in.
type Answer = (OciImageManifest, String, String, Option<String>);

/// Registries of images.
pub(crate) struct Registry {
    client: Client,
}

impl Registry {
    pub(crate) fn new(settings: &KubeSettings) -> Self {
        // The client takes the process's provider, of which ours is the only one. An error says that there is one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let config = ClientConfig {
            protocol: ClientProtocol::HttpsExcept(settings.insecure_registries.clone()),
            connect_timeout: Some(CONNECT),
            read_timeout: Some(Duration::from_secs(30)),
            ..ClientConfig::default()
        };
        Self { client: Client::new(config) }
    }

    /// `None` for an image that the registry does not have.
    ///
    /// # Errors
    /// [`Error::PullFailed`] when the registry does not answer, or refuses.
    pub(crate) async fn find(&self, name: &ImageRef, within: Duration) -> Result<Option<RegistryImage>> {
        let failed =
            |why: String| Error::PullFailed { image: name.clone(), excerpt: Excerpt::from_bytes(why.as_bytes()) };
        let reference: Reference = name.completed().as_str().parse().map_err(|err| failed(format!("{err}")))?;
        let answer = timeout(within, self.ask(&reference)).await;
        match answer.map_err(|_| Error::TimedOut { verb: "pull", after: within })? {
            Ok((manifest, digest, config, list_digest)) => {
                let size = manifest.layers.iter().map(|it| u64::try_from(it.size).unwrap_or(0)).sum();
                Ok(Some(RegistryImage { digest, list_digest, config, size_bytes: size }))
            }
            Err(err) if is_missing(&err) => Ok(None),
            Err(err) => Err(failed(causes(&err))),
        }
    }

    /// A registry that fails is asked again: some do while another client writes the same name.
    async fn ask(&self, reference: &Reference) -> std::result::Result<Answer, OciDistributionError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            let asked = self.client.pull_manifest_and_config_and_list_digest(reference, &RegistryAuth::Anonymous);
            match (asked.await, pauses.next()) {
                (Err(OciDistributionError::ServerError { code: 500.., .. }), Some(pause)) => sleep(pause).await,
                (answer, _) => return answer,
            }
        }
    }

    /// Pushes a file that is at its start, unless the registry has it.
    ///
    /// # Errors
    /// [`Error::Engine`] when the registry does not take it.
    pub(crate) async fn push_blob(&self, name: &ImageRef, file: File, descriptor: &OciDescriptor) -> Result<()> {
        let reference = self.to_push(name).await?;
        if self.client.blob_exists(&reference, &descriptor.digest).await.unwrap_or(false) {
            return Ok(());
        }
        let parts = ReaderStream::with_capacity(tokio::fs::File::from_std(file), PART).map_err(Into::into);
        let size = u64::try_from(descriptor.size).ok();
        let pushed = self.client.push_blob_stream(&reference, parts, &descriptor.digest, size).await;
        pushed.map(drop).map_err(|err| not_pushed(&err))
    }

    /// The same of a small blob.
    ///
    /// # Errors
    /// As [`push_blob`](Self::push_blob).
    pub(crate) async fn push_bytes(&self, name: &ImageRef, bytes: Vec<u8>, descriptor: &OciDescriptor) -> Result<()> {
        let reference = self.to_push(name).await?;
        self.client.push_blob(&reference, bytes, &descriptor.digest).await.map(drop).map_err(|err| not_pushed(&err))
    }

    /// Names an image whose blobs are there.
    ///
    /// # Errors
    /// As [`push_blob`](Self::push_blob).
    pub(crate) async fn push_manifest(&self, name: &ImageRef, manifest: OciImageManifest) -> Result<()> {
        let reference = self.to_push(name).await?;
        self.client.push_manifest(&reference, &manifest.into()).await.map(drop).map_err(|err| not_pushed(&err))
    }

    async fn to_push(&self, name: &ImageRef) -> Result<Reference> {
        let reference: Reference = name.as_str().parse().map_err(|err| refusal("push", &format!("{err}")))?;
        self.client.store_auth_if_needed(reference.resolve_registry(), &RegistryAuth::Anonymous).await;
        Ok(reference)
    }
}

fn not_pushed(err: &OciDistributionError) -> Error {
    refusal("push", &causes(err))
}

fn is_missing(err: &OciDistributionError) -> bool {
    match err {
        OciDistributionError::ImageManifestNotFoundError(_) => true,
        OciDistributionError::ServerError { code, .. } => *code == 404,
        OciDistributionError::RegistryError { envelope, .. } => envelope.errors.iter().any(|it| {
            matches!(it.code, OciErrorCode::ManifestUnknown | OciErrorCode::NameUnknown | OciErrorCode::NotFound)
        }),
        _ => false,
    }
}

fn causes(err: &OciDistributionError) -> String {
    let mut text = err.to_string();
    let mut cause = std::error::Error::source(err);
    while let Some(it) = cause {
        text = format!("{text}: {it}");
        cause = it.source();
    }
    text
}
