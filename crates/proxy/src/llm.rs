//! The routes to models: whoever asks has no key, and gets none.

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

/// What travels to a provider. `accept-encoding` is ours: what is compressed cannot be metered.
const REQUEST: [&str; 6] =
    ["content-type", "accept", "openai-beta", "anthropic-version", "anthropic-beta", "idempotency-key"];

/// A request to a model, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelRequest {
    Chat,
    Embeddings,
    /// `OpenAI`'s newer form of a conversation.
    Responses,
    Messages,
    /// The size of a conversation in tokens.
    CountTokens,
    Models,
    /// Google's form, whole.
    Generate,
    /// The same as it comes.
    StreamGenerate,
    /// The size of the same in tokens.
    CountGenerate,
}

/// Google's methods, behind the name of a model.
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

    /// A request in Google's form, by what stands behind `models/`.
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

    /// Whether the model stands in the address.
    fn is_google(self) -> bool {
        METHODS.iter().any(|it| it.1 == self)
    }

    /// Whether a model works for it.
    fn costs(self) -> bool {
        !matches!(self, Self::Models | Self::CountTokens | Self::CountGenerate)
    }

    /// Whether a provider of that kind has it.
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

/// Passes a request on, if it may be.
pub(crate) async fn pass(
    shared: &ProxyInner,
    grants: &Grants,
    asked: ModelRequest,
    request: Request<Incoming>,
    entry: &mut Entry,
) -> Result<Accepted, Rejection> {
    let provider = grants.provider.as_ref().ok_or(Rejection::Unprovided)?;
    let mut headers = body::only(request.headers(), &REQUEST);
    let named = request.uri().path().rsplit('/').next().and_then(|it| it.split_once(':')).map(|it| it.0.to_owned());
    let named = named.filter(|_| asked.is_google());
    let sends = if asked == ModelRequest::Models { Vec::new() } else { body::read(request, grants.max_body).await? };
    entry.line.bytes_in = sends.len() as u64;
    if asked != ModelRequest::Models {
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
    if asked.costs() && shared.meter.metered().exhausts(&grants.budget) {
        return Err(Rejection::Budget);
    }
    let key = provider.key.key().await.ok_or(Rejection::NoKey)?;
    for (name, value) in &provider.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value)) {
            headers.insert(name, value);
        }
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    authorize(&mut headers, (provider.kind, asked), &key)?;
    let method = if sends.is_empty() { Method::GET } else { Method::POST };
    let url = address(provider, asked, named.as_deref());
    let request = coracle_http::request(method, &url, headers, whole(sends));
    if asked.costs() {
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
    let reader = (asked.costs() && status.is_success()).then(|| UsageReader::new(kind.as_deref()));
    Ok(Accepted::Passing(Box::new(UpstreamResponse { status, headers, body, scrub, reader, place })))
}

fn authorize(
    headers: &mut HeaderMap,
    (kind, asked): (ProviderKind, ModelRequest),
    key: &Secret,
) -> Result<(), Rejection> {
    let name = match kind {
        ProviderKind::OpenAi => AUTHORIZATION,
        // It takes requests of the other kind with a bearer.
        ProviderKind::Anthropic if asked == ModelRequest::Chat => AUTHORIZATION,
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

fn address(provider: &ProviderConfig, asked: ModelRequest, model: Option<&str>) -> Url {
    let mut url = provider.base.clone();
    let route = model.map_or_else(|| asked.route().to_owned(), |it| format!("models/{it}:{}", asked.route()));
    let path = format!("{}/{route}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    // Else it would answer with one array.
    url.set_query((asked == ModelRequest::StreamGenerate).then_some("alt=sse"));
    url
}

/// A name that is one part of an address, as it stands.
fn is_model(name: &str) -> bool {
    let part = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= 128 && !name.starts_with('.') && name.bytes().all(part)
}

/// A body beside an address that names the model: another name in it could be taken in its place.
fn unnamed(body: &[u8]) -> Result<(), Rejection> {
    let odd = Rejection::Request("The body is no JSON object, or names a `model` beside that of the address.");
    match serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body) {
        Ok(fields) if fields.keys().all(|it| !it.eq_ignore_ascii_case("model")) => Ok(()),
        _ => Err(odd),
    }
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
    fn an_address_of_google_names_a_model_and_its_body_none() {
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
