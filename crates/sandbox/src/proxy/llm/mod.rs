//! The routes to models: whoever asks has no key, and gets none.

pub(super) mod scrub;
pub(super) mod usage;

use std::fmt;

use coracle_runtime::Secret;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request};
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use url::Url;

use self::scrub::Scrub;
use self::usage::UsageReader;
use super::ProxyInner;
use super::body;
use super::grants::{Grants, ProviderConfig, ProviderKind};
use super::response::{Rejection, whole};
use super::routes::{Accepted, Entry, UpstreamResponse};
use crate::http;

/// What travels to a provider. `accept-encoding` is ours: what is compressed cannot be metered.
const REQUEST: [&str; 6] =
    ["content-type", "accept", "openai-beta", "anthropic-version", "anthropic-beta", "idempotency-key"];

/// A request to a model, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModelRequest {
    Chat,
    Embeddings,
    Messages,
    Models,
}

impl ModelRequest {
    pub(super) fn parse(method: &Method, path: &str) -> Option<Self> {
        match (method, path) {
            (&Method::POST, "chat/completions") => Some(Self::Chat),
            (&Method::POST, "embeddings") => Some(Self::Embeddings),
            (&Method::POST, "messages") => Some(Self::Messages),
            (&Method::GET, "models") => Some(Self::Models),
            _ => None,
        }
    }

    pub(super) fn route(self) -> &'static str {
        match self {
            Self::Chat => "chat/completions",
            Self::Embeddings => "embeddings",
            Self::Messages => "messages",
            Self::Models => "models",
        }
    }

    /// Whether a provider of that kind has it.
    pub(super) fn suits(self, kind: ProviderKind) -> bool {
        match kind {
            ProviderKind::OpenAi => self != Self::Messages,
            ProviderKind::Anthropic => self != Self::Embeddings,
        }
    }
}

/// Passes a request on, if it may be.
pub(super) async fn pass(
    shared: &ProxyInner,
    grants: &Grants,
    asked: ModelRequest,
    request: Request<Incoming>,
    entry: &mut Entry,
) -> Result<Accepted, Rejection> {
    let provider = grants.provider.as_ref().ok_or(Rejection::Unprovided)?;
    let mut headers = body::only(request.headers(), &REQUEST);
    let sends = if asked == ModelRequest::Models { Vec::new() } else { body::read(request, grants.max_body).await? };
    entry.line.bytes_in = sends.len() as u64;
    if asked != ModelRequest::Models {
        let model = model_of(&sends)?;
        entry.line.model = Some(super::log::shown(&model));
        if !provider.models.is_match(&model) {
            return Err(Rejection::Model);
        }
    }
    shared.meter.admit().map_err(Rejection::Rate)?;
    let place = shared.meter.place().await;
    if asked != ModelRequest::Models && shared.meter.metered().exhausts(&grants.budget) {
        return Err(Rejection::Budget);
    }
    let key = provider.key.key().await.ok_or(Rejection::Unreachable)?;
    for (name, value) in &provider.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    authorize(&mut headers, (provider.kind, asked), &key)?;
    let (method, url) = (if sends.is_empty() { Method::GET } else { Method::POST }, address(provider, asked));
    let request = http::request(method, &url, headers, whole(sends));
    if asked != ModelRequest::Models {
        // From here on it may cost.
        entry.charge();
    }
    let response = match body::sent(&shared.clients.any, request, shared.pace).await {
        Ok(response) => response,
        Err(Rejection::Unreachable) => {
            entry.is_free();
            return Err(Rejection::Unreachable);
        }
        Err(no) => return Err(no),
    };
    let (parts, body) = response.into_parts();
    let status = parts.status;
    if !status.is_success() {
        entry.is_free();
    }
    if status.is_redirection() {
        return Err(Rejection::Failed);
    }
    let scrub = Scrub::new(key);
    let mut headers = HeaderMap::new();
    for (name, value) in &body::passing(&parts.headers) {
        if !scrub.is_in(value.as_bytes()) {
            headers.append(name.clone(), value.clone());
        }
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).map(str::to_owned);
    let reader = (asked != ModelRequest::Models && status.is_success()).then(|| UsageReader::new(kind.as_deref()));
    Ok(Accepted::Passing(Box::new(UpstreamResponse { status, headers, body, scrub, reader, place })))
}

fn authorize(
    headers: &mut HeaderMap,
    (kind, asked): (ProviderKind, ModelRequest),
    key: &Secret,
) -> Result<(), Rejection> {
    // A provider of the second kind takes requests of the first with a bearer.
    let bearer = kind == ProviderKind::OpenAi || asked == ModelRequest::Chat;
    let before: &[u8] = if bearer { b"Bearer " } else { b"" };
    let value = Secret::new([before, key.reveal()].concat());
    let mut value = HeaderValue::from_bytes(value.reveal()).map_err(|_| Rejection::Unreachable)?;
    value.set_sensitive(true);
    headers.insert(if bearer { AUTHORIZATION } else { HeaderName::from_static("x-api-key") }, value);
    Ok(())
}

fn address(provider: &ProviderConfig, asked: ModelRequest) -> Url {
    let mut url = provider.base.clone();
    let path = format!("{}/{}", url.path().trim_end_matches('/'), asked.route());
    url.set_path(&path);
    url
}

/// The model that a body names, which it has to do once and in one way: who reads it behind us must find the same.
fn model_of(body: &[u8]) -> Result<String, Rejection> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let odd = |_| Rejection::Request("The body is no JSON object that names one `model`.");
    let model = json.deserialize_map(Top).map_err(odd)?;
    json.end().map_err(odd)?;
    Ok(model)
}

struct Top;

impl<'de> Visitor<'de> for Top {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object that names one `model`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let mut model = None;
        while let Some(key) = map.next_key::<String>()? {
            match &*key {
                "model" if model.is_none() => model = Some(map.next_value()?),
                // Some readers take `Model` for it.
                key if key.eq_ignore_ascii_case("model") => return Err(A::Error::duplicate_field("model")),
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        model.ok_or_else(|| A::Error::missing_field("model"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_names_one_model() {
        assert_eq!(model_of(br#"{"stream":true,"mod\u0065l":"gpt-x","messages":[{"model":"y"}]}"#).unwrap(), "gpt-x");
        for odd in [
            "",
            "{}",
            "[]",
            r#"{"model":7}"#,
            r#"{"model":null}"#,
            r#"{"model":"a","model":"b"}"#,
            r#"{"model":"a","Model":"b"}"#,
            r#"{"model":"a"}{"model":"b"}"#,
            r#"{"model":"a""#,
        ] {
            assert!(matches!(model_of(odd.as_bytes()), Err(Rejection::Request(_))), "{odd}");
        }
    }
}
