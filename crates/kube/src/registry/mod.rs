//! Reads descriptions of images from registries. Nodes pull the layers themselves.

mod config;
mod login;

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use coracle_host::registry_login::LoginFiles;
use coracle_types::{Error, Excerpt, ImageRef, Result};
use futures_util::TryStreamExt as _;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::errors::{OciDistributionError, OciErrorCode};
use oci_client::manifest::{OciDescriptor, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use tokio::time::{sleep, timeout};
use tokio_util::io::ReaderStream;

pub(crate) use self::config::RegistryImage;
use self::login::{ImageLogin, login};
use crate::error::refusal;
use crate::settings::KubeSettings;

/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Size of one read of a blob.
const PART: usize = 256 << 10;

/// Pauses before retries to a registry that fails.
const PAUSES: [Duration; 3] = [Duration::from_millis(200), Duration::from_millis(600), Duration::from_secs(2)];

/// Manifest, its digest, configuration, and the digest of the list that the manifest is in.
type ManifestResponse = (OciImageManifest, String, String, Option<String>);

/// Registries of images.
pub(crate) struct Registry {
    insecure: Vec<String>,
    logins: LoginFiles,
    /// A client caches the first login of each registry, so each repository has its own client, with its login.
    clients: Mutex<BTreeMap<String, (RegistryAuth, Client)>>,
}

/// A repository with a client.
struct OpenRepository {
    client: Client,
    reference: Reference,
    auth: RegistryAuth,
    /// The source of the login, or why there is none, for messages.
    login: String,
}

impl Registry {
    pub(crate) fn new(settings: &KubeSettings) -> Self {
        // The client uses the process's default provider, which is always this one. An error means that it is already
        // set.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (insecure, logins) = (settings.insecure_registries.clone(), settings.logins.clone());
        Self { insecure, logins, clients: Mutex::default() }
    }

    /// Opens the repository of an image, with the user's current login.
    async fn open(&self, name: &ImageRef) -> Result<OpenRepository, String> {
        let reference: Reference = name.as_str().parse().map_err(|err| format!("{err}"))?;
        let ImageLogin { auth, origin } = login(&self.logins, &self.insecure, &reference).await?;
        let key = format!("{}/{}", reference.registry(), reference.repository());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let known = clients.get(&key).filter(|it| it.0 == auth).map(|it| it.1.clone());
        let client = known.unwrap_or_else(|| {
            let client = Client::new(self.config());
            clients.insert(key, (auth.clone(), client.clone()));
            client
        });
        Ok(OpenRepository { client, reference, auth, login: origin })
    }

    fn config(&self) -> ClientConfig {
        ClientConfig {
            protocol: ClientProtocol::HttpsExcept(self.insecure.clone()),
            connect_timeout: Some(CONNECT),
            read_timeout: Some(Duration::from_secs(30)),
            ..ClientConfig::default()
        }
    }

    /// `None` for an image that the registry does not have.
    ///
    /// # Errors
    /// [`Error::PullFailed`] if the registry does not answer, or refuses.
    pub(crate) async fn find(&self, name: &ImageRef, within: Duration) -> Result<Option<RegistryImage>> {
        let failed =
            |why: String| Error::PullFailed { image: name.clone(), excerpt: Excerpt::from_bytes(why.as_bytes()) };
        let repository = self.open(&name.completed()).await.map_err(failed)?;
        let answer = timeout(within, repository.find()).await;
        match answer.map_err(|_| Error::TimedOut { verb: "pull", after: within })? {
            Ok((manifest, digest, config, list_digest)) => {
                let size = manifest.layers.iter().map(|it| u64::try_from(it.size).unwrap_or(0)).sum();
                Ok(Some(RegistryImage { digest, list_digest, config, size_bytes: size }))
            }
            Err(err) if is_missing(&err) => Ok(None),
            Err(err) => Err(failed(repository.causes(&err))),
        }
    }

    /// Pushes a file from its start, unless the registry has it.
    ///
    /// # Errors
    /// [`Error::Engine`] if the registry does not accept it.
    pub(crate) async fn push_blob(&self, name: &ImageRef, file: File, descriptor: &OciDescriptor) -> Result<()> {
        let to = self.to_push(name).await?;
        if to.client.blob_exists(&to.reference, &descriptor.digest).await.unwrap_or(false) {
            return Ok(());
        }
        let parts = ReaderStream::with_capacity(tokio::fs::File::from_std(file), PART).map_err(Into::into);
        let size = u64::try_from(descriptor.size).ok();
        let pushed = to.client.push_blob_stream(&to.reference, parts, &descriptor.digest, size).await;
        pushed.map(drop).map_err(|err| to.not_pushed(&err))
    }

    /// Pushes a small blob.
    ///
    /// # Errors
    /// Those of [`push_blob`](Self::push_blob).
    pub(crate) async fn push_bytes(&self, name: &ImageRef, bytes: Vec<u8>, descriptor: &OciDescriptor) -> Result<()> {
        let to = self.to_push(name).await?;
        let pushed = to.client.push_blob(&to.reference, bytes, &descriptor.digest).await;
        pushed.map(drop).map_err(|err| to.not_pushed(&err))
    }

    /// Pushes the manifest of an image whose blobs were pushed.
    ///
    /// # Errors
    /// Those of [`push_blob`](Self::push_blob).
    pub(crate) async fn push_manifest(&self, name: &ImageRef, manifest: OciImageManifest) -> Result<()> {
        let (to, manifest) = (self.to_push(name).await?, manifest.into());
        let pushed = with_retries(|| to.client.push_manifest(&to.reference, &manifest)).await;
        pushed.map(drop).map_err(|err| to.not_pushed(&err))
    }

    async fn to_push(&self, name: &ImageRef) -> Result<OpenRepository> {
        let to = self.open(name).await.map_err(|why| refusal("push", &why))?;
        to.client.store_auth_if_needed(to.reference.resolve_registry(), &to.auth).await;
        Ok(to)
    }
}

impl OpenRepository {
    async fn find(&self) -> std::result::Result<ManifestResponse, OciDistributionError> {
        with_retries(|| self.client.pull_manifest_and_config_and_list_digest(&self.reference, &self.auth)).await
    }

    fn not_pushed(&self, err: &OciDistributionError) -> Error {
        refusal("push", &self.causes(err))
    }

    /// Formats all causes, and the login if the registry does not accept it.
    fn causes(&self, err: &OciDistributionError) -> String {
        let text = causes(err);
        let is_refused = match err {
            OciDistributionError::UnauthorizedError { .. } | OciDistributionError::AuthenticationFailure(_) => true,
            OciDistributionError::ServerError { code, .. } => matches!(code, 401 | 403),
            OciDistributionError::RegistryError { envelope, .. } => {
                envelope.errors.iter().any(|it| matches!(it.code, OciErrorCode::Unauthorized | OciErrorCode::Denied))
            }
            _ => false,
        };
        if is_refused { format!("{text} ({})", self.login) } else { text }
    }
}

/// Retries a request that fails temporarily, after each of [`PAUSES`].
async fn with_retries<T, F: Future<Output = std::result::Result<T, OciDistributionError>>>(
    send: impl Fn() -> F,
) -> std::result::Result<T, OciDistributionError> {
    let mut pauses = PAUSES.into_iter();
    loop {
        match (send().await, pauses.next()) {
            (Err(err), Some(pause)) if is_passing(&err) => sleep(pause).await,
            (answer, _) => return answer,
        }
    }
}

/// While another client pushes the same name, some registries fail, or do not know a layer that was just pushed.
fn is_passing(err: &OciDistributionError) -> bool {
    match err {
        OciDistributionError::ServerError { code: 500.., .. } => true,
        OciDistributionError::ServerError { code: 400, message, .. } => message.contains("\"MANIFEST_BLOB_UNKNOWN\""),
        _ => false,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, message: &str) -> OciDistributionError {
        OciDistributionError::ServerError {
            code,
            url: "http://r.example/v2/a/manifests/1".into(),
            message: message.into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unknown_layer_is_retried_and_a_refusal_is_not() {
        let unknown = r#"{"errors":[{"code":"MANIFEST_BLOB_UNKNOWN","message":"blob unknown to registry"}]}"#;
        for (code, message, expected) in [(400, unknown, 4), (503, "", 4), (400, "{}", 1), (403, unknown, 1)] {
            let requests = std::cell::Cell::new(0);
            let answer: std::result::Result<(), _> = with_retries(|| {
                requests.set(requests.get() + 1);
                std::future::ready(Err(refused(code, message)))
            })
            .await;
            assert_eq!((answer.is_err(), requests.get()), (true, expected), "{code} {message}");
        }
    }
}
