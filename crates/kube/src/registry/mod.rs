//! Registries, asked for what they tell of an image. Layers are the nodes' affair.

mod config;

use std::time::Duration;

use coracle_runtime::{Error, Excerpt, ImageRef, Result};
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use tokio::time::timeout;

pub(crate) use self::config::RegistryImage;
use crate::settings::KubeSettings;

/// Time for a connection.
const CONNECT: Duration = Duration::from_secs(5);

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
        let asked = self.client.pull_manifest_and_config_and_list_digest(&reference, &RegistryAuth::Anonymous);
        let answer = timeout(within, asked).await;
        match answer.map_err(|_| Error::TimedOut { verb: "pull", after: within })? {
            Ok((manifest, digest, config, list_digest)) => {
                let size = manifest.layers.iter().map(|it| u64::try_from(it.size).unwrap_or(0)).sum();
                Ok(Some(RegistryImage { digest, list_digest, config, size_bytes: size }))
            }
            Err(err) if is_missing(&err) => Ok(None),
            Err(err) => Err(failed(causes(&err))),
        }
    }
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
