//! The HTTP client. Sends one request and follows no redirects.

use std::error::Error;
use std::fmt;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::client::danger::ServerCertVerifier;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use rustls_platform_verifier::Verifier;
use url::Url;

use super::connector::{AddressRule, Connector, ForbiddenAddress};
use super::name::RepositoryName;
use crate::options::RegistryOptions;
use crate::source::{Result, SourceError};

/// Time limits of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// For connecting, including TLS.
    pub(crate) connect: Duration,
    /// Before the head of a response, and between two of its parts.
    pub(crate) silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), silence: Duration::from_secs(30) }
    }
}

pub(super) type RequestBody = Full<Bytes>;

/// Sends requests, and reuses connections.
#[derive(Clone)]
pub(super) struct HttpClient {
    client: Client<Connector, RequestBody>,
    timeouts: Timeouts,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

impl HttpClient {
    pub(super) fn new(tls: ClientConfig, options: &RegistryOptions, rule: AddressRule, timeouts: Timeouts) -> Self {
        let proxies = Matcher::builder().no(options.proxy.no_proxy.as_str());
        let proxies = match &options.proxy.https {
            Some(proxy) => proxies.https(proxy.as_str()).build(),
            None => proxies.build(),
        };
        let connector = Connector::new(tls, Arc::new(proxies), rule, timeouts.connect);
        let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Self { client, timeouts }
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Errors
    /// [`SourceError::PrivateAddress`], [`SourceError::Silent`], [`SourceError::Unreachable`].
    pub(super) async fn send(&self, url: &Url, mut request: Request<RequestBody>) -> Result<Response<Incoming>> {
        let host = host_of(url);
        let uri = Uri::try_from(url.as_str());
        *request.uri_mut() = uri.map_err(|err| SourceError::malformed("address", &err))?;
        let silent = SourceError::Silent { host: host.clone(), after: self.timeouts.silence };
        // Connecting has its own limit, which is part of this one.
        let answered =
            tokio::time::timeout(self.timeouts.silence + self.timeouts.connect, self.client.request(request));
        let answer = answered.await.map_err(|_| silent)?;
        answer.map_err(|err| match forbidden(&err) {
            Some(address) => SourceError::PrivateAddress { host: host.clone(), target: host.clone(), address },
            None => SourceError::Unreachable { host, reason: innermost(&err) },
        })
    }

    /// Receives the next part of a response; `None` at its end.
    ///
    /// # Errors
    /// [`io::Error`] if the connection breaks; of kind `TimedOut` if nothing arrives in time.
    pub(super) async fn next_part(&self, body: &mut Incoming) -> io::Result<Option<Bytes>> {
        loop {
            let silent = format!("received nothing for {} s", self.timeouts.silence.as_secs());
            let frame = tokio::time::timeout(self.timeouts.silence, body.frame()).await;
            match frame.map_err(|_| io::Error::new(io::ErrorKind::TimedOut, silent))? {
                None => return Ok(None),
                Some(Err(err)) => return Err(io::Error::other(innermost(&err))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Receives the whole body of a small response.
    ///
    /// # Errors
    /// [`SourceError::Image`], [`SourceError::Unreachable`].
    pub(super) async fn read_body(&self, host: &str, what: &str, body: Incoming, limit: u64) -> Result<Vec<u8>> {
        let (mut body, mut bytes) = (body, Vec::new());
        let cut = |err: io::Error| SourceError::Unreachable { host: host.to_owned(), reason: err.to_string() };
        while let Some(part) = self.next_part(&mut body).await.map_err(cut)? {
            if (bytes.len() + part.len()) as u64 > limit {
                return Err(SourceError::too_large(what, limit));
            }
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    }
}

/// Host and port, for messages: no user, no path, no query.
pub(super) fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Configures TLS with the certificates of this machine and those of the options. A registry on this machine needs
/// none.
///
/// # Errors
/// [`SourceError::Certificates`].
pub(super) fn tls_config(options: &RegistryOptions, name: &RepositoryName) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let extra = extra_certificates(options)?;
    let failed = |err: rustls::Error| SourceError::Certificates { file: "this machine".into(), why: err.to_string() };
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().map_err(failed)?;
    match Verifier::new_with_extra_roots(extra.clone(), provider) {
        Ok(verifier) => {
            let verifier: Arc<dyn ServerCertVerifier> = Arc::new(verifier);
            Ok(config.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
        }
        Err(err) => {
            if !name.is_local() {
                tracing::warn!(
                    registry = %name.registry, %err,
                    "the certificates of this machine cannot be read; install the package `ca-certificates`"
                );
            }
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(extra);
            Ok(config.with_root_certificates(roots).with_no_client_auth())
        }
    }
}

fn extra_certificates(options: &RegistryOptions) -> Result<Vec<CertificateDer<'static>>> {
    let mut all = Vec::new();
    for file in &options.extra_ca_files {
        let failed = |why: String| SourceError::Certificates { file: file.display().to_string(), why };
        let text = fs::read(file).map_err(|err| failed(err.to_string()))?;
        let found: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let found = found.map_err(|err| failed(err.to_string()))?;
        if found.is_empty() {
            return Err(failed("it has no certificate".into()));
        }
        all.extend(found);
    }
    Ok(all)
}

fn causes<'a>(err: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(err), |it: &&'a (dyn Error + 'static)| (*it).source())
}

/// The innermost cause: the outer ones only say that something failed.
fn innermost(err: &(dyn Error + 'static)) -> String {
    causes(err).last().map(ToString::to_string).unwrap_or_default()
}

/// The address to which [`AddressRule`] forbade a connection.
fn forbidden(err: &(dyn Error + 'static)) -> Option<std::net::IpAddr> {
    let inner = |it: &(dyn Error + 'static)| {
        let io = it.downcast_ref::<io::Error>()?;
        Some(io.get_ref()?.downcast_ref::<ForbiddenAddress>()?.0)
    };
    causes(err).find_map(inner)
}
