//! Downloads features from a registry: OCI artifacts with one layer, fetched by the host.
//!
//! `oci-client` 0.18 is not used for this: with `rustls` and `ring` it adds 31 crates to the program, `reqwest` and a second
//! HTTP stack among them (33 with its default provider, `aws-lc-rs`).
//!
//! **Invariant:** data of a registry is used only if its SHA-256 is the requested one, or the one in the manifest; and
//! no more bytes are read than the manifest announces.
//! **Invariant:** no credential of the user is sent: requests are anonymous.

use std::sync::Arc;
use std::time::Duration;

use coracle_http::{Body, HttpClient, innermost, request};
use coracle_types::failure::{Code, Failure, Result};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderValue, LOCATION, WWW_AUTHENTICATE};
use hyper::{HeaderMap, Method, Response, StatusCode};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use url::Url;

use crate::artifact::{Artifact, is_digest};

/// Maximum size of a manifest, and of a token response.
const MAX_TEXT: usize = 1 << 20;

/// Maximum size of a layer.
const MAX_LAYER: usize = 64 << 20;

/// Timeout of a whole response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Maximum number of redirects. Registries redirect to the storage of layers.
const REDIRECTS: usize = 5;

/// The media type of a manifest.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The current manifest of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// `sha256:…` of the manifest, which identifies this artifact permanently.
    pub digest: String,
    /// `sha256:…` of its only layer.
    pub layer: String,
    size: usize,
}

fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// A client of registries.
#[derive(Clone, Debug)]
pub struct Registries(HttpClient);

/// The last response of a redirect chain, with its body if it succeeded.
struct RegistryResponse {
    status: StatusCode,
    headers: HeaderMap,
    bytes: Vec<u8>,
}

impl Registries {
    /// Creates a client without connecting.
    ///
    /// # Errors
    /// If the host has no root certificates.
    pub fn new() -> Result<Self> {
        let lookup =
            |name: String| async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|it| it.ip()).collect()) };
        HttpClient::new(Arc::new(move |name| Box::pin(lookup(name))), CONNECT).map(Self).map_err(Failure::internal)
    }

    /// Fetches the current manifest of an artifact.
    ///
    /// # Errors
    /// `fetch_failed` if it does not exist, or has another digest; `devcontainer_invalid` if it is not a feature.
    pub async fn manifest(&self, of: &Artifact) -> Result<Manifest> {
        let bytes = self.get(of, &format!("manifests/{}", of.reference), MAX_TEXT).await?;
        let digest = digest_of(&bytes);
        if is_digest(&of.reference) && of.reference != digest {
            return Err(of.failed(format!("what came is {digest}")));
        }
        let invalid = |why: &str| {
            let message = format!("`{}/{}` is no feature: {why}.", of.registry, of.repository);
            Failure::new(Code::DevcontainerInvalid, message).detail("digest", digest.clone())
        };
        let manifest: ManifestBody =
            serde_json::from_slice(&bytes).map_err(|_| invalid("its manifest cannot be read"))?;
        let [layer] = manifest.layers.as_slice() else { return Err(invalid("it has not exactly one layer")) };
        if !is_digest(&layer.digest) {
            return Err(invalid("its layer is named by another digest than SHA-256"));
        }
        let size = usize::try_from(layer.size).ok().filter(|it| *it <= MAX_LAYER);
        let size = size.ok_or_else(|| invalid(&format!("its layer is larger than {} MiB", MAX_LAYER >> 20)))?;
        Ok(Manifest { layer: layer.digest.clone(), size, digest })
    }

    /// Fetches its layer, a tar.
    ///
    /// # Errors
    /// `fetch_failed`.
    pub async fn layer(&self, of: &Artifact, manifest: &Manifest) -> Result<Vec<u8>> {
        let bytes = self.get(of, &format!("blobs/{}", manifest.layer), manifest.size).await?;
        let digest = digest_of(&bytes);
        if digest != manifest.layer {
            return Err(of.failed(format!("the layer that came is {digest}, not {}", manifest.layer)));
        }
        Ok(bytes)
    }

    async fn get(&self, of: &Artifact, rest: &str, most: usize) -> Result<Vec<u8>> {
        let url = Url::parse(&of.url(rest)).map_err(|err| of.failed(err))?;
        let mut answer = self.request(of, url.clone(), None, most).await?;
        if answer.status == StatusCode::UNAUTHORIZED
            && let Some(token) = self.token(of, &answer.headers).await?
        {
            answer = self.request(of, url, Some(&token), most).await?;
        }
        match answer.status {
            StatusCode::OK => Ok(answer.bytes),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(of.failed("its registry requires a login")),
            StatusCode::NOT_FOUND => Err(of.failed(format!("there is no `{}`", of.reference))),
            status => Err(of.failed(format!("the registry answers {status}"))),
        }
    }

    async fn request(&self, of: &Artifact, url: Url, token: Option<&str>, most: usize) -> Result<RegistryResponse> {
        let late = |_| of.failed(format!("no whole answer came within {} s", RESPONSE_TIMEOUT.as_secs()));
        timeout(RESPONSE_TIMEOUT, self.follow(of, url, token, most)).await.map_err(late)?
    }

    /// Follows redirects; the token is sent to the first origin only.
    async fn follow(
        &self,
        of: &Artifact,
        mut url: Url,
        mut token: Option<&str>,
        most: usize,
    ) -> Result<RegistryResponse> {
        for _ in 0..=REDIRECTS {
            let request = request(Method::GET, &url, headers(of, token)?, Body::default());
            let response = self.0.send(request.map_err(|err| of.failed(err))?).await.map_err(|err| of.failed(err))?;
            let Some(next) = redirect(&response, &url) else { return read_body(of, response, most).await };
            if !of.is_local() && next.scheme() != "https" {
                return Err(of.failed("a redirect to a place without TLS"));
            }
            token = token.filter(|_| next.origin() == url.origin());
            url = next;
        }
        Err(of.failed("too many redirects"))
    }

    /// The anonymous token of the registry's token service.
    async fn token(&self, of: &Artifact, refused: &HeaderMap) -> Result<Option<String>> {
        let challenge = refused.get(WWW_AUTHENTICATE).and_then(|it| it.to_str().ok()).and_then(bearer);
        let Some((realm, service)) = challenge else { return Ok(None) };
        let scope = format!("repository:{}:pull", of.repository);
        let service = service.iter().map(|it| ("service", it.as_str()));
        let url = Url::parse_with_params(&realm, service.chain([("scope", scope.as_str())]));
        let url = url.ok().filter(|it| of.is_local() || it.scheme() == "https");
        let url = url.ok_or_else(|| of.failed("its registry names no place for tokens that has TLS"))?;
        let answer = self.request(of, url, None, MAX_TEXT).await?;
        if answer.status != StatusCode::OK {
            return Ok(None);
        }
        let given: TokenResponse = serde_json::from_slice(&answer.bytes).unwrap_or_default();
        Ok(given.token.or(given.access_token))
    }
}

fn headers(of: &Artifact, token: Option<&str>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(MANIFEST))]);
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.map_err(|_| of.failed("its registry gave a token that no header can carry"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}

/// The target of a redirect.
fn redirect(response: &Response<Incoming>, from: &Url) -> Option<Url> {
    let location =
        response.headers().get(LOCATION).filter(|_| matches!(response.status().as_u16(), 301..=303 | 307 | 308));
    from.join(location?.to_str().ok()?).ok().filter(|it| matches!(it.scheme(), "https" | "http"))
}

/// Reads the body of a response, within the limit.
async fn read_body(of: &Artifact, response: Response<Incoming>, most: usize) -> Result<RegistryResponse> {
    let (parts, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while parts.status == StatusCode::OK
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|err| of.failed(innermost(&err)))?;
        let more = frame.data_ref().map_or(&[][..], |it| it);
        if bytes.len() + more.len() > most {
            return Err(of.failed(format!("more than {most} bytes came")));
        }
        bytes.extend_from_slice(more);
    }
    Ok(RegistryResponse { status: parts.status, headers: parts.headers, bytes })
}

/// Parses realm and service of `Bearer realm="…",service="…",scope="…"`.
fn bearer(header: &str) -> Option<(String, Option<String>)> {
    let (kind, rest) = header.split_once(' ')?;
    let values = |name: &str| {
        let at = rest.find(&format!("{name}=\""))? + name.len() + 2;
        rest[at..].split('"').next().map(str::to_owned)
    };
    kind.eq_ignore_ascii_case("bearer").then(|| Some((values("realm")?, values("service"))))?
}

#[derive(Deserialize)]
struct ManifestBody {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    digest: String,
    size: u64,
}

#[derive(Default, Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Starts a registry with these answers.
    async fn serves(answers: impl Fn(&str, &str) -> String + Send + 'static) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let own = at.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut received = Vec::new();
                while !received.ends_with(b"\r\n\r\n") && stream.read_buf(&mut received).await.unwrap_or(0) > 0 {}
                let request = String::from_utf8_lossy(&received).to_ascii_lowercase();
                let answer = answers(&request, &own);
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        at
    }

    fn answer(status: &str, head: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n{head}\r\n{body}", body.len())
    }

    fn manifest(layer: &str, size: usize) -> String {
        format!(r#"{{"layers":[{{"digest":"{layer}","size":{size}}}]}}"#)
    }

    #[tokio::test]
    async fn an_anonymous_token_is_requested_and_a_redirected_layer_is_followed() {
        let at = serves(|request, own| match request.lines().next().unwrap_or_default() {
            it if it.starts_with("get /token?service=here&scope=repository%3aa%2fb%3apull") => {
                answer("200 OK", "", r#"{"token":"t"}"#)
            }
            it if it.starts_with("get /elsewhere") => answer("200 OK", "", "layer"),
            _ if !request.contains("authorization: bearer t") => {
                let head = format!("WWW-Authenticate: Bearer realm=\"http://{own}/token\",service=\"here\"\r\n");
                answer("401 Unauthorized", &head, "")
            }
            it if it.contains("/manifests/1") => answer("200 OK", "", &manifest(&digest_of(b"layer"), 5)),
            _ => answer("307 Temporary Redirect", &format!("Location: http://{own}/elsewhere\r\n"), ""),
        });
        let (registries, of) = (Registries::new().unwrap(), Artifact::parse(&format!("{}/a/b:1", at.await)).unwrap());
        let found = registries.manifest(&of).await.unwrap();
        assert_eq!(found.digest, digest_of(manifest(&digest_of(b"layer"), 5).as_bytes()));
        assert_eq!(registries.layer(&of, &found).await.unwrap(), b"layer");
        let other = registries.manifest(&of.at(&digest_of(b"other"))).await.unwrap_err();
        assert_eq!(other.code, Code::FetchFailed);
    }

    #[tokio::test]
    async fn the_token_is_sent_to_no_other_origin_and_redirects_are_limited() {
        let other = serves(|request, _| match request.contains("authorization:") {
            true => answer("400 Bad Request", "", ""),
            false => answer("200 OK", "", "layer"),
        });
        let other = other.await;
        let at = serves(move |request, own| match request.lines().next().unwrap_or_default() {
            it if it.starts_with("get /token") => answer("200 OK", "", r#"{"token":"t"}"#),
            _ if !request.contains("authorization: bearer t") => {
                let head = format!("WWW-Authenticate: Bearer realm=\"http://{own}/token\"\r\n");
                answer("401 Unauthorized", &head, "")
            }
            it if it.contains("/manifests/1") => answer("200 OK", "", &manifest(&digest_of(b"layer"), 5)),
            it if it.contains("/manifests/") => answer("302 Found", "Location: again\r\n", ""),
            _ => answer("307 Temporary Redirect", &format!("Location: http://{other}/elsewhere\r\n"), ""),
        });
        let (registries, of) = (Registries::new().unwrap(), Artifact::parse(&format!("{}/a/b:1", at.await)).unwrap());
        let found = registries.manifest(&of).await.unwrap();
        assert_eq!(registries.layer(&of, &found).await.unwrap(), b"layer");
        let circle = registries.manifest(&of.at("circle")).await.unwrap_err();
        assert!(circle.message.contains("too many redirects"), "{circle}");
    }

    #[tokio::test]
    async fn data_with_another_digest_is_refused() {
        let other = digest_of(b"other");
        let manifests = [
            manifest(&other, 5),
            manifest(&digest_of(b"layer"), 4),
            manifest(&digest_of(b"layer"), MAX_LAYER + 1),
            manifest("md5:0", 5),
            r#"{"layers":[]}"#.to_owned(),
            "no".to_owned(),
            r#"{"manifests":[]}"#.to_owned(),
        ];
        for (number, manifest) in manifests.into_iter().enumerate() {
            let at = serves(move |request, _| match request {
                it if it.contains("/manifests/") => answer("200 OK", "", &manifest),
                _ => answer("200 OK", "", "layer"),
            });
            let (registries, of) = (Registries::new().unwrap(), Artifact::parse(&format!("{}/a:1", at.await)).unwrap());
            let failure = match registries.manifest(&of).await {
                Ok(found) => registries.layer(&of, &found).await.unwrap_err(),
                Err(failure) => failure,
            };
            let expected = if number < 2 { Code::FetchFailed } else { Code::DevcontainerInvalid };
            assert_eq!(failure.code, expected, "{number}: {failure}");
        }
        let unreachable = Artifact::parse("127.0.0.1:9/a:1").unwrap();
        assert_eq!(Registries::new().unwrap().manifest(&unreachable).await.unwrap_err().code, Code::FetchFailed);
    }

    #[test]
    fn the_address_of_the_token_service_is_parsed() {
        let header = r#"Bearer realm="https://ghcr.io/token",service="ghcr.io",scope="repository:a/b:pull""#;
        assert_eq!(bearer(header), Some(("https://ghcr.io/token".into(), Some("ghcr.io".into()))));
        assert_eq!(bearer("Basic realm=\"x\""), None);
        assert_eq!(bearer("Bearer service=\"x\""), None);
        assert_eq!(bearer("Bearer"), None);
    }
}
