//! The authorization header that a registry requires.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coracle_host::registry_login::{CredentialKind, RegistryLogin, deserialize_secret};
use coracle_types::Secret;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode};
use serde::Deserialize;
use url::Url;
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use super::challenge::Challenge;
use super::http::{HttpClient, RequestBody, host_of};
use super::name::{RepositoryName, is_local_host};
use crate::source::{Result, SourceError};

/// Maximum size of a token service's answer, in bytes.
const MAX_TOKEN: u64 = 256 << 10;

/// The header that authorizes requests to a repository.
#[derive(Clone, Debug)]
pub(super) struct Authorization {
    pub(super) header: HeaderValue,
    /// Where the credentials come from; `None` for an anonymous token.
    pub(super) origin: Option<String>,
}

/// A registry's token service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenService {
    pub(super) realm: Url,
    service: Option<String>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    #[serde(default, deserialize_with = "deserialize_secret")]
    token: Option<Secret>,
    #[serde(default, deserialize_with = "deserialize_secret")]
    access_token: Option<Secret>,
}

/// The next step to an authorization.
#[derive(Debug)]
pub(super) enum NextStep {
    /// The credentials suffice.
    Done(Authorization),
    /// A token has to be fetched.
    FetchToken(TokenService),
}

/// Decides how to answer a challenge.
///
/// # Errors
/// [`SourceError::LoginRequired`], and [`SourceError::Challenge`] for a login that is not supported.
pub(super) fn next_step(
    name: &RepositoryName,
    challenge: Option<Challenge>,
    credentials: Option<&RegistryLogin>,
) -> Result<NextStep> {
    let unmet = |why: &str| SourceError::Challenge { host: name.registry.clone(), why: why.to_owned() };
    match (challenge, credentials.map(|it| (&it.kind, it))) {
        (Some(Challenge::Bearer { .. }), Some((CredentialKind::RegistryToken(token), it))) => {
            Ok(NextStep::Done(Authorization { header: bearer(token)?, origin: Some(it.origin.clone()) }))
        }
        (Some(Challenge::Bearer { realm, service }), _) => {
            let realm = Url::parse(&realm).map_err(|_| unmet("its token service has an invalid URL"))?;
            let local = name.is_local() && realm.scheme() == "http" && realm.host_str().is_some_and(is_local_host);
            if realm.scheme() != "https" && !local {
                return Err(unmet("its token service does not use TLS"));
            }
            Ok(NextStep::FetchToken(TokenService { realm, service }))
        }
        (Some(Challenge::Basic), Some((CredentialKind::Password { user, password }, it))) => {
            Ok(NextStep::Done(Authorization { header: basic(user, password)?, origin: Some(it.origin.clone()) }))
        }
        (Some(Challenge::Basic), Some(_)) => Err(unmet("it needs a password, but the credentials are a token")),
        (Some(Challenge::Basic), None) => Err(SourceError::LoginRequired { host: name.registry.clone() }),
        (None, _) => Err(unmet("neither with a password nor with a token")),
    }
}

impl TokenService {
    /// Fetches a token to pull from a repository. Redirects are not followed: the request may carry a password.
    ///
    /// # Errors
    /// [`SourceError::LoginRefused`], [`SourceError::LoginRequired`], [`SourceError::Challenge`], and those of the
    /// transfer.
    pub(super) async fn fetch(
        &self,
        http: &HttpClient,
        name: &RepositoryName,
        credentials: Option<&RegistryLogin>,
    ) -> Result<Authorization> {
        let host = host_of(&self.realm);
        let (url, request) = self.request(name, credentials)?;
        let response = http.send(&url, request).await?;
        let status = response.status();
        let (registry, origin) = (name.registry.clone(), credentials.map(|it| it.origin.clone()));
        match (status, &origin) {
            (StatusCode::OK, _) => {}
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST, Some(origin)) => {
                return Err(SourceError::LoginRefused { host: registry, origin: origin.clone() });
            }
            (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, None) => {
                return Err(SourceError::LoginRequired { host: registry });
            }
            _ => return Err(SourceError::Status { host, status: status.as_u16(), message: " for a token".into() }),
        }
        let bytes = Zeroizing::new(http.read_body(&host, "token", response.into_body(), MAX_TOKEN).await?);
        let none =
            || SourceError::Challenge { host: registry.clone(), why: format!("a token that {host} does not give") };
        let answer: TokenAnswer = serde_json::from_slice(&bytes).map_err(|_| none())?;
        let token = answer.token.or(answer.access_token).ok_or_else(none)?;
        Ok(Authorization { header: bearer(&token)?, origin })
    }

    /// Builds the request: a query, or a form for an identity token, so that no proxy logs the token.
    fn request(
        &self,
        name: &RepositoryName,
        credentials: Option<&RegistryLogin>,
    ) -> Result<(Url, Request<RequestBody>)> {
        let scope = format!("repository:{}:pull", name.repository);
        let service = self.service.as_deref().map(|it| ("service", it));
        let mut url = self.realm.clone();
        let mut request = Request::new(RequestBody::default());
        match credentials.map(|it| &it.kind) {
            Some(CredentialKind::IdentityToken(token)) => {
                let token = std::str::from_utf8(token.reveal()).map_err(|_| unfit())?;
                let mut form = Serializer::new(String::new());
                form.extend_pairs(service)
                    .append_pair("grant_type", "refresh_token")
                    .append_pair("client_id", "coracle");
                form.append_pair("scope", &scope).append_pair("refresh_token", token);
                *request.method_mut() = Method::POST;
                *request.body_mut() = RequestBody::new(Bytes::from(form.finish()));
                let form = HeaderValue::from_static("application/x-www-form-urlencoded");
                request.headers_mut().insert(CONTENT_TYPE, form);
            }
            other => {
                url.query_pairs_mut().extend_pairs(service).append_pair("scope", &scope);
                if let Some(CredentialKind::Password { user, password }) = other {
                    request.headers_mut().insert(AUTHORIZATION, basic(user, password)?);
                }
            }
        }
        Ok((url, request))
    }
}

fn unfit() -> SourceError {
    SourceError::malformed("authorization", &"no header can carry it")
}

fn bearer(token: &Secret) -> Result<HeaderValue> {
    header([b"Bearer ", token.reveal()].concat())
}

fn basic(user: &str, password: &Secret) -> Result<HeaderValue> {
    let pair = Zeroizing::new([user.as_bytes(), b":", password.reveal()].concat());
    header(format!("Basic {}", BASE64_STANDARD.encode(&pair)).into_bytes())
}

/// A header whose value debug output hides.
fn header(value: Vec<u8>) -> Result<HeaderValue> {
    let mut header = HeaderValue::from_bytes(&Zeroizing::new(value)).map_err(|_| unfit())?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use coracle_types::ImageRef;

    use super::*;

    fn name(text: &str) -> RepositoryName {
        RepositoryName::from_image(&ImageRef::parse(text).unwrap()).unwrap()
    }

    fn credentials(kind: CredentialKind) -> RegistryLogin {
        RegistryLogin { kind, origin: "`a file`".into() }
    }

    fn realm(text: &str) -> Option<Challenge> {
        Some(Challenge::Bearer { realm: text.into(), service: Some("s".into()) })
    }

    #[test]
    fn tokens_are_fetched_over_tls_or_from_this_machine() {
        let step = |image: &str, address: &str| next_step(&name(image), realm(address), None);
        assert!(matches!(step("r.example/a", "https://other.example/token"), Ok(NextStep::FetchToken(_))));
        assert!(matches!(step("localhost:1/a", "http://127.0.0.1:2/token"), Ok(NextStep::FetchToken(_))));
        for (image, address) in [
            ("r.example/a", "http://r.example/token"),
            ("r.example/a", "http://localhost/token"),
            ("localhost:1/a", "http://r.example/token"),
            ("localhost:1/a", "file:///etc/passwd"),
            ("localhost:1/a", "token"),
        ] {
            assert!(matches!(step(image, address), Err(SourceError::Challenge { .. })), "{image} {address}");
        }
    }

    #[test]
    fn passwords_are_sent_in_headers_and_identity_tokens_in_a_form() {
        let Ok(NextStep::FetchToken(service)) =
            next_step(&name("r.example/a/b"), realm("https://t.example/x?y=z"), None)
        else {
            panic!("no token service");
        };
        let sent = |kind: Option<CredentialKind>| {
            let (url, request) = service.request(&name("r.example/a/b"), kind.map(credentials).as_ref()).unwrap();
            (url.to_string(), request)
        };
        let query = "https://t.example/x?y=z&service=s&scope=repository%3Aa%2Fb%3Apull";
        let (url, request) = sent(None);
        assert_eq!((url.as_str(), request.headers().len()), (query, 0));
        let (url, request) = sent(Some(CredentialKind::Password { user: "u".into(), password: "p".into() }));
        assert_eq!((url.as_str(), request.headers()[AUTHORIZATION].as_bytes()), (query, &b"Basic dTpw"[..]));
        assert!(!format!("{:?}", request.headers()).contains("dTpw"));
        let (url, request) = sent(Some(CredentialKind::IdentityToken("secret".into())));
        assert_eq!((url.as_str(), request.method()), ("https://t.example/x?y=z", &Method::POST));
    }

    #[test]
    fn a_password_is_sent_only_if_required() {
        let name = name("r.example/a");
        let known = credentials(CredentialKind::Password { user: "u".into(), password: "p".into() });
        assert!(matches!(next_step(&name, Some(Challenge::Basic), Some(&known)), Ok(NextStep::Done(_))));
        assert!(matches!(next_step(&name, Some(Challenge::Basic), None), Err(SourceError::LoginRequired { .. })));
        assert!(matches!(next_step(&name, None, Some(&known)), Err(SourceError::Challenge { .. })));
        let token = credentials(CredentialKind::RegistryToken("t".into()));
        assert!(matches!(next_step(&name, realm("x"), Some(&token)), Ok(NextStep::Done(_))));
    }
}
