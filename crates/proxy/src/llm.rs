//! The routes to models. Clients have no key and never get one.

use std::collections::BTreeMap;
use std::fmt;

use coracle_types::Secret;
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request};
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use url::Url;

use crate::body;
use crate::caller::ProxyInner;
use crate::entry::{Accepted, Entry, UpstreamResponse};
use crate::policy::{Grants, ProviderConfig, ProviderKind};
use crate::response::{Rejection, whole};
use crate::scrub::Scrub;
use crate::usage::UsageReader;

/// Headers that are forwarded to a provider. `accept-encoding` is set by the proxy, which cannot meter compressed
/// responses.
const REQUEST: [&str; 6] =
    ["content-type", "accept", "openai-beta", "anthropic-version", "anthropic-beta", "idempotency-key"];

/// A request to a model, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelRequest {
    Chat,
    Embeddings,
    /// `OpenAI`'s newer conversation API.
    Responses,
    Messages,
    /// Counts the tokens of a conversation.
    CountTokens,
    Models,
    /// Google's API, with the whole answer at once.
    Generate,
    /// Google's API, with the answer as a stream.
    StreamGenerate,
    /// Google's API to count tokens.
    CountGenerate,
}

/// Google's methods, which follow the name of a model.
const METHODS: [(&str, ModelRequest); 3] = [
    ("generateContent", ModelRequest::Generate),
    ("streamGenerateContent", ModelRequest::StreamGenerate),
    ("countTokens", ModelRequest::CountGenerate),
];

impl ModelRequest {
    pub(crate) fn parse(method: &Method, path: &str) -> Option<Self> {
        match (method, path) {
            (&Method::POST, "chat/completions") => Some(Self::Chat),
            (&Method::POST, "embeddings") => Some(Self::Embeddings),
            (&Method::POST, "responses") => Some(Self::Responses),
            (&Method::POST, "messages") => Some(Self::Messages),
            (&Method::POST, "messages/count_tokens") => Some(Self::CountTokens),
            (&Method::GET, "models") => Some(Self::Models),
            _ => None,
        }
    }

    /// Parses a request of Google's API by the part of the path behind `models/`.
    pub(crate) fn parse_method(method: &Method, path: &str) -> Option<Self> {
        let (model, name) = path.split_once(':')?;
        let found = METHODS.iter().find(|it| it.0 == name)?;
        (method == Method::POST && is_model(model)).then_some(found.1)
    }

    pub(crate) fn route(self) -> &'static str {
        match self {
            Self::Chat => "chat/completions",
            Self::Embeddings => "embeddings",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::CountTokens => "messages/count_tokens",
            Self::Models => "models",
            Self::Generate => "generateContent",
            Self::StreamGenerate => "streamGenerateContent",
            Self::CountGenerate => "countTokens",
        }
    }

    /// Whether the URL contains the model.
    fn is_google(self) -> bool {
        METHODS.iter().any(|it| it.1 == self)
    }

    /// Whether the provider may charge for it.
    fn costs(self) -> bool {
        !matches!(self, Self::Models | Self::CountTokens | Self::CountGenerate)
    }

    /// Whether a provider of that kind supports it.
    pub(crate) fn suits(self, kind: ProviderKind) -> bool {
        match kind {
            ProviderKind::OpenAi => matches!(self, Self::Chat | Self::Embeddings | Self::Responses | Self::Models),
            ProviderKind::Anthropic => {
                matches!(self, Self::Chat | Self::Messages | Self::CountTokens | Self::Models)
            }
            ProviderKind::Google => self.is_google(),
        }
    }
}

/// Forwards a request, if the grants allow it.
pub(crate) async fn pass(
    shared: &ProxyInner,
    grants: &Grants,
    wanted: ModelRequest,
    request: Request<Incoming>,
    entry: &mut Entry,
) -> Result<Accepted, Rejection> {
    let provider = grants.provider.as_ref().ok_or(Rejection::Unprovided)?;
    let mut headers = body::only(request.headers(), &REQUEST);
    let named = request.uri().path().rsplit('/').next().and_then(|it| it.split_once(':')).map(|it| it.0.to_owned());
    let named = named.filter(|_| wanted.is_google());
    let sends = if wanted == ModelRequest::Models { Vec::new() } else { body::read(request, grants.max_body).await? };
    entry.line.bytes_in = sends.len() as u64;
    if wanted != ModelRequest::Models {
        let model = match &named {
            Some(model) => unnamed(&sends).map(|()| model.clone()),
            None => model_of(&sends),
        }?;
        entry.line.model = Some(crate::log::shown(&model));
        if !provider.models.is_match(&model) {
            return Err(Rejection::Model);
        }
    }
    shared.meter.admit().map_err(Rejection::Rate)?;
    let place = shared.meter.place().await;
    if wanted.costs() && shared.meter.metered().exhausts(&grants.budget) {
        return Err(Rejection::Budget);
    }
    let key = provider.key.key().await.ok_or(Rejection::NoKey)?;
    for (name, value) in &provider.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    authorize(&mut headers, (provider.kind, wanted), &key)?;
    let method = if sends.is_empty() { Method::GET } else { Method::POST };
    let url = address(provider, wanted, named.as_deref());
    let request = coracle_http::request(method, &url, headers, whole(sends));
    if wanted.costs() {
        // From here on the provider may charge for it.
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
    if scrub.cannot_read(&parts.headers) {
        return Err(Rejection::Failed);
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &body::passing(&parts.headers) {
        if !scrub.is_in(value.as_bytes()) {
            headers.append(name.clone(), value.clone());
        }
    }
    let kind = headers.get(CONTENT_TYPE).and_then(|it| it.to_str().ok()).map(str::to_owned);
    let reader = (wanted.costs() && status.is_success()).then(|| UsageReader::new(kind.as_deref()));
    Ok(Accepted::Passing(Box::new(UpstreamResponse { status, headers, body, scrub, reader, place })))
}

fn authorize(
    headers: &mut HeaderMap,
    (kind, wanted): (ProviderKind, ModelRequest),
    key: &Secret,
) -> Result<(), Rejection> {
    let name = match kind {
        ProviderKind::OpenAi => AUTHORIZATION,
        // Anthropic accepts requests of OpenAI's form with a bearer token.
        ProviderKind::Anthropic if wanted == ModelRequest::Chat => AUTHORIZATION,
        ProviderKind::Anthropic => HeaderName::from_static("x-api-key"),
        ProviderKind::Google => HeaderName::from_static("x-goog-api-key"),
    };
    let before: &[u8] = if name == AUTHORIZATION { b"Bearer " } else { b"" };
    let value = Secret::new([before, key.reveal()].concat());
    let mut value = HeaderValue::from_bytes(value.reveal()).map_err(|_| Rejection::Unreachable)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

fn address(provider: &ProviderConfig, wanted: ModelRequest, model: Option<&str>) -> Url {
    let mut url = provider.base.clone();
    let route = model.map_or_else(|| wanted.route().to_owned(), |it| format!("models/{it}:{}", wanted.route()));
    let path = format!("{}/{route}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    // Without it Google answers with one array instead of a stream.
    url.set_query((wanted == ModelRequest::StreamGenerate).then_some("alt=sse"));
    url
}

/// Whether a name is a single path segment that needs no escaping.
fn is_model(name: &str) -> bool {
    let part = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= 128 && !name.starts_with('.') && name.bytes().all(part)
}

/// Fails if the URL names the model and the body names one too, which the provider could use instead.
fn unnamed(body: &[u8]) -> Result<(), Rejection> {
    let odd = Rejection::Request("The body is no JSON object, or names a `model` beside that of the address.");
    match serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body) {
        Ok(fields) if fields.keys().all(|it| !it.eq_ignore_ascii_case("model")) => Ok(()),
        _ => Err(odd),
    }
}

/// Returns the model in a body. It has to be named exactly once, so that the provider reads the same one.
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
                // Some parsers accept `Model` as well.
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
    fn a_google_url_names_a_model_and_its_body_none() {
        let parse = |path: &str| ModelRequest::parse_method(&Method::POST, path);
        assert_eq!(parse("gemini-2.5-pro:streamGenerateContent"), Some(ModelRequest::StreamGenerate));
        for odd in
            ["gemini", "a/b:generateContent", "..:generateContent", "a%2f:generateContent", "a:delete", ":countTokens"]
        {
            assert_eq!(parse(odd), None, "{odd}");
        }
        assert!(unnamed(br#"{"contents":[{"model":"x"}]}"#).is_ok());
        for odd in [r#"{"model":"a"}"#, r#"{"Model":"a"}"#, "[]", ""] {
            assert!(unnamed(odd.as_bytes()).is_err(), "{odd}");
        }
    }

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
