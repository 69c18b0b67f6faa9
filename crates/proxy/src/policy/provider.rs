//! Providers of models, and the sources of their keys.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_types::Secret;
use coracle_types::failure::Failure;
use globset::GlobSet;

use super::patterns::{globs, invalid};

/// The API of a provider of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// `chat/completions`, `responses`, `embeddings`, `models`; the key is a bearer token.
    OpenAi,
    /// `messages`, `models` and `chat/completions`; the key has its own header.
    Anthropic,
    /// `models/NAME:generateContent` and related methods; the key has its own header.
    Google,
}

/// A provider of models.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// Its API.
    pub kind: ProviderKind,
    pub(crate) base: url::Url,
    /// The source of its key.
    pub key: Arc<dyn KeySource>,
    pub(crate) models: GlobSet,
    pub(crate) headers: BTreeMap<String, String>,
}

/// Provides a key at each use, so that a new key takes effect at once and none is stored.
#[async_trait]
pub trait KeySource: fmt::Debug + Send + Sync {
    /// Returns the key. `None` if there is none; the source reports the reason to the user.
    async fn key(&self) -> Option<Secret>;
}

/// A key that does not change.
#[derive(Debug)]
pub struct FixedKey(pub Arc<Secret>);

#[async_trait]
impl KeySource for FixedKey {
    async fn key(&self) -> Option<Secret> {
        Some(Secret::new(self.0.reveal().to_vec()))
    }
}

/// Headers that only the proxy sets.
const RESERVED_HEADERS: [&str; 7] =
    ["authorization", "x-api-key", "x-goog-api-key", "host", "content-length", "transfer-encoding", "connection"];

impl ProviderConfig {
    /// Creates a provider at `base_url`, which has to be https, or http on this host. Its query is dropped. `models`
    /// are globs of the allowed models; without globs no model is allowed.
    ///
    /// # Errors
    /// `invalid_input`, without repeating the URL.
    pub fn new(
        kind: ProviderKind,
        base_url: &str,
        key: Arc<dyn KeySource>,
        models: &[String],
    ) -> Result<Self, Failure> {
        let mut base = url::Url::parse(base_url).map_err(|_| invalid("`base_url` is no address."))?;
        let local = match base.host_str() {
            Some("localhost") => true,
            Some(host) => host.trim_matches(['[', ']']).parse().is_ok_and(|it: IpAddr| it.is_loopback()),
            None => false,
        };
        if base.scheme() != "https" && !(base.scheme() == "http" && local) {
            return Err(invalid("`base_url` is https, or http to this machine."));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(invalid("`base_url` holds no password: a key has a setting of its own."));
        }
        base.set_query(None);
        base.set_fragment(None);
        Ok(Self { kind, base, key, models: globs(models, false)?, headers: BTreeMap::new() })
    }

    /// Adds headers to each request.
    ///
    /// # Errors
    /// `invalid_input` for an invalid header, or one that only the proxy sets.
    pub fn with_headers(mut self, headers: &BTreeMap<String, String>) -> Result<Self, Failure> {
        for (name, value) in headers {
            let lower = name.to_ascii_lowercase();
            let is_name = hyper::header::HeaderName::from_bytes(lower.as_bytes()).is_ok();
            if !is_name || RESERVED_HEADERS.contains(&&*lower) || hyper::header::HeaderValue::from_str(value).is_err() {
                return Err(invalid("That is no header that a provider can be sent."));
            }
            self.headers.insert(lower, value.clone());
        }
        Ok(self)
    }
}

/// Whether the list `models` contains this model, by the same rule as its route.
///
/// # Errors
/// `invalid_input` for an invalid pattern.
pub fn is_listed(models: &[String], model: &str) -> Result<bool, Failure> {
    Ok(globs(models, false)?.is_match(model))
}

#[cfg(test)]
mod tests {
    use coracle_types::failure::Code;

    use super::*;

    fn provider(base_url: &str) -> Result<ProviderConfig, Failure> {
        let key = Arc::new(FixedKey(Arc::new(Secret::from("key"))));
        ProviderConfig::new(ProviderKind::OpenAi, base_url, key, &["gpt-*".into()])
    }

    #[test]
    fn a_provider_needs_https_or_this_host() {
        for good in ["https://api.example.com/v1", "http://127.0.0.1:8080", "http://[::1]/x", "http://localhost:1/"] {
            assert!(provider(good).is_ok(), "{good}");
        }
        for bad in ["", "api.example.com", "http://api.example.com", "file:///etc", "https://u:secret@api.example.com"]
        {
            let failure = provider(bad).unwrap_err();
            assert!(failure.code == Code::InvalidInput && !failure.message.contains("secret"), "{bad}");
        }
        assert_eq!(provider("https://a.com/v1?key=x#y").unwrap().base.as_str(), "https://a.com/v1");
    }

    #[test]
    fn reserved_headers_cannot_be_configured() {
        let with = |name: &str, value: &str| {
            provider("https://a.com").unwrap().with_headers(&[(name.to_owned(), value.to_owned())].into())
        };
        assert!(with("OpenAI-Organization", "org").is_ok());
        for (name, value) in [("Authorization", "x"), ("x-api-key", "x"), ("a b", "x"), ("x", "a\nb")] {
            assert!(with(name, value).is_err(), "{name}");
        }
    }
}
