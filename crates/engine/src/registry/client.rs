//! Requests to one repository, with redirects and authorization.

use std::net::IpAddr;
use std::path::Path;

use coracle_host::address::is_public;
use coracle_host::registry_login::{LoginError, LoginFiles};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderValue, LOCATION, RANGE};
use hyper::{HeaderMap, Request, Response, StatusCode};
use serde::Deserialize;
use tokio::sync::{Mutex, OnceCell};
use url::Url;

use super::authorization::{Authorization, NextStep, next_step};
use super::challenge::Challenge;
use super::connector::AddressRule;
use super::http::{HttpClient, RequestBody, Timeouts, host_of, tls_config};
use super::name::{RepositoryName, is_local_host};
use crate::options::RegistryOptions;
use crate::source::{Result, SourceError};

/// Maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 5;

/// Maximum size of the body of an error, in bytes.
const MAX_ERROR: u64 = 64 << 10;

/// A client of one repository.
#[derive(Debug)]
pub(super) struct RepositoryClient {
    pub(super) name: RepositoryName,
    registry: HttpClient,
    /// For redirects of a registry with public addresses.
    public: HttpClient,
    redirect_rule: OnceCell<AddressRule>,
    logins: LoginFiles,
    authorization: Mutex<Option<Authorization>>,
}

/// A request to the registry.
#[derive(Clone, Debug)]
pub(super) struct RegistryRequest<'a> {
    /// `manifests` or `blobs`.
    pub(super) kind: &'static str,
    pub(super) reference: &'a str,
    pub(super) accept: Option<HeaderValue>,
    /// The offset to start from.
    pub(super) from: u64,
}

/// A response whose head was received.
#[derive(Debug)]
pub(super) struct RegistryResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Incoming,
    /// The host that sent it.
    pub(super) host: String,
    pub(super) http: HttpClient,
}

impl RepositoryClient {
    /// Creates a client. Does not connect yet. Blocks, since it reads certificates.
    pub(super) fn new(
        name: RepositoryName,
        home: &Path,
        options: &RegistryOptions,
        timeouts: Timeouts,
    ) -> Result<Self> {
        let tls = tls_config(options, &name)?;
        Ok(Self {
            registry: HttpClient::new(tls.clone(), options, AddressRule::Anywhere, timeouts),
            public: HttpClient::new(tls, options, AddressRule::PublicOnly, timeouts),
            redirect_rule: OnceCell::new(),
            logins: LoginFiles::new(home, options.logins()),
            authorization: Mutex::new(None),
            name,
        })
    }

    /// Sends a request, and repeats it with authorization if the registry requires that.
    ///
    /// # Errors
    /// [`SourceError`] for any response without content.
    pub(super) async fn get(&self, request: &RegistryRequest<'_>) -> Result<RegistryResponse> {
        let used = self.authorization.lock().await.clone();
        let mut response = self.follow(request, used.as_ref()).await?;
        let mut used = used;
        if response.status == StatusCode::UNAUTHORIZED && response.host == self.name.host_of_url() {
            let fresh = self.authorize(&response.headers, used).await?;
            response = self.follow(request, Some(&fresh)).await?;
            used = Some(fresh);
        }
        match response.status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => Ok(response),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if response.host == self.name.host_of_url() => {
                Err(self.refusal(used.and_then(|it| it.origin)))
            }
            StatusCode::NOT_FOUND => {
                let what = format!("{}:{}", self.name.repository, request.reference);
                Err(SourceError::NotFound { place: self.name.registry.clone(), what })
            }
            status => Err(status_error(response, status).await),
        }
    }

    fn refusal(&self, origin: Option<String>) -> SourceError {
        let host = self.name.registry.clone();
        match origin {
            Some(origin) => SourceError::LoginRefused { host, origin },
            None => SourceError::LoginRequired { host },
        }
    }

    /// Obtains a new authorization, unless another request has obtained one since `used`.
    async fn authorize(&self, refused: &HeaderMap, used: Option<Authorization>) -> Result<Authorization> {
        let mut current = self.authorization.lock().await;
        let same = |it: &Authorization| used.as_ref().is_some_and(|used| used.header == it.header);
        if let Some(newer) = current.as_ref().filter(|it| !same(it)) {
            return Ok(newer.clone());
        }
        let found = self.logins.find(self.name.login_path()).await;
        let credentials = found.map_err(|LoginError { origin, why }| {
            let host = self.name.registry.clone();
            SourceError::Credentials { host, origin, why }
        })?;
        let fresh = match next_step(&self.name, Challenge::parse(refused), credentials.as_ref())? {
            NextStep::Done(authorization) => authorization,
            NextStep::FetchToken(service) => {
                let http = self.http_for(&service.realm).await?;
                let fetched = service.fetch(http, &self.name, credentials.as_ref()).await;
                fetched.map_err(|err| self.at_registry(err))?
            }
        };
        *current = Some(fresh.clone());
        Ok(fresh)
    }

    /// Sends a request and follows redirects. Authorization is dropped at the first redirect to another origin, and not
    /// sent again if a later redirect leads back to the registry.
    async fn follow(
        &self,
        request: &RegistryRequest<'_>,
        mut authorization: Option<&Authorization>,
    ) -> Result<RegistryResponse> {
        let mut url = self.name.url(request.kind, request.reference)?;
        for _ in 0..=MAX_REDIRECTS {
            let http = self.http_for(&url).await?;
            let response = http.send(&url, request.build(authorization)).await.map_err(|err| self.at_registry(err))?;
            let Some(next) = self.redirect(&response, &url)? else {
                let (parts, body) = response.into_parts();
                let (status, headers) = (parts.status, parts.headers);
                return Ok(RegistryResponse { status, headers, body, host: host_of(&url), http: http.clone() });
            };
            authorization = authorization.filter(|_| next.origin() == url.origin());
            url = next;
        }
        let (host, target) = (self.name.registry.clone(), host_of(&url));
        Err(SourceError::Redirect { host, target, why: "too many redirects" })
    }

    /// The target of a redirect.
    fn redirect(&self, response: &Response<Incoming>, from: &Url) -> Result<Option<Url>> {
        if !matches!(response.status().as_u16(), 301..=303 | 307 | 308) {
            return Ok(None);
        }
        let refused = |target: String, why| SourceError::Redirect { host: host_of(from), target, why };
        let location = response.headers().get(LOCATION).and_then(|it| it.to_str().ok());
        let mut next =
            location.and_then(|it| from.join(it).ok()).ok_or_else(|| refused("nowhere".into(), "it has no address"))?;
        let _ = next.set_username("");
        let _ = next.set_password(None);
        next.set_fragment(None);
        match next.scheme() {
            "https" => Ok(Some(next)),
            // What is sent stays on this machine, where no other user can read or change it.
            "http" if self.name.is_local() && next.host_str().is_some_and(is_local_host) => Ok(Some(next)),
            _ => Err(refused(host_of(&next), "the address does not use TLS")),
        }
    }

    /// The HTTP client for an address. The registry itself may have any address.
    async fn http_for(&self, url: &Url) -> Result<&HttpClient> {
        let own = self.name.url("", "")?;
        if own.origin() == url.origin() {
            return Ok(&self.registry);
        }
        Ok(match self.redirect_rule.get_or_init(|| rule_for_redirects(&own)).await {
            AddressRule::Anywhere => &self.registry,
            AddressRule::PublicOnly => &self.public,
        })
    }

    /// Names the registry as the host that led to a private address.
    fn at_registry(&self, err: SourceError) -> SourceError {
        match err {
            SourceError::PrivateAddress { target, address, .. } => {
                SourceError::PrivateAddress { host: self.name.registry.clone(), target, address }
            }
            other => other,
        }
    }
}

async fn rule_for_redirects(registry: &Url) -> AddressRule {
    let address = (registry.host_str().unwrap_or_default().to_owned(), registry.port_or_known_default().unwrap_or(443));
    match tokio::net::lookup_host(address).await {
        Ok(found) => rule_for_addresses(found.map(|it| it.ip())),
        Err(_) => AddressRule::PublicOnly,
    }
}

/// A registry may redirect to private addresses if all its own addresses are private. If its addresses are unknown,
/// because a proxy resolves them, it may not. If it has public and private addresses, it may not either: its owner
/// could add a private address to reach the network of this machine.
fn rule_for_addresses(addresses: impl IntoIterator<Item = IpAddr>) -> AddressRule {
    let mut addresses = addresses.into_iter().peekable();
    let is_private = addresses.peek().is_some() && addresses.all(|it| !is_public(it));
    if is_private { AddressRule::Anywhere } else { AddressRule::PublicOnly }
}

impl RegistryRequest<'_> {
    fn build(&self, authorization: Option<&Authorization>) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::default());
        let headers = request.headers_mut();
        headers.insert(ACCEPT, self.accept.clone().unwrap_or(HeaderValue::from_static("*/*")));
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization.header.clone());
        }
        if self.from > 0
            && let Ok(range) = HeaderValue::from_str(&format!("bytes={}-", self.from))
        {
            headers.insert(RANGE, range);
        }
        request
    }
}

#[derive(Default, Deserialize)]
struct ErrorBody {
    #[serde(default)]
    errors: Vec<ErrorItem>,
}

#[derive(Deserialize)]
struct ErrorItem {
    #[serde(default)]
    code: String,
}

/// Converts a status to an error. Uses only the code of the registry's answer, since its text could repeat secrets that
/// were sent.
async fn status_error(response: RegistryResponse, status: StatusCode) -> SourceError {
    let RegistryResponse { body, host, http, .. } = response;
    let bytes = http.read_body(&host, "error", body, MAX_ERROR).await.unwrap_or_default();
    let body: ErrorBody = serde_json::from_slice(&bytes).unwrap_or_default();
    let is_code =
        |it: &String| !it.is_empty() && it.len() <= 40 && it.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let code = body.errors.into_iter().map(|it| it.code).find(is_code).map(|it| format!(" ({it})"));
    let hint = if status == StatusCode::TOO_MANY_REQUESTS { "; wait, or log in" } else { "" };
    SourceError::Status { host, status: status.as_u16(), message: format!("{}{hint}", code.unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_registry_with_private_addresses_may_redirect_to_private_ones() {
        let rule = |addresses: &[&str]| rule_for_addresses(addresses.iter().map(|it| it.parse().unwrap()));
        for private in [&["10.0.0.1"][..], &["127.0.0.1", "::1"]] {
            assert_eq!(rule(private), AddressRule::Anywhere, "{private:?}");
        }
        for other in [&[][..], &["93.184.216.34"], &["93.184.216.34", "10.0.0.1"], &["10.0.0.1", "2606:4700::1"]] {
            assert_eq!(rule(other), AddressRule::PublicOnly, "{other:?}");
        }
    }
}
