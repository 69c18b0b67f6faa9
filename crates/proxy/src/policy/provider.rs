//! Providers of models, and who gives their keys.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_types::Secret;
use coracle_types::failure::Failure;
use globset::GlobSet;

use super::patterns::{globs, invalid};

/// How a provider of models is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// `chat/completions`, `responses`, `embeddings`, `models`; the key is a bearer.
    OpenAi,
    /// `messages`, `models` and `chat/completions`; the key has a header of its own.
    Anthropic,
    /// `models/NAME:generateContent` and what belongs to it; the key has a header of its own.
    Google,
}

/// A provider of models.
#[derive(Clone, Debug)]
pub struct ProviderConfig {
    /// How it is spoken to.
    pub kind: ProviderKind,
    pub(crate) base: url::Url,
    /// Gives its key.
    pub key: Arc<dyn KeySource>,
    pub(crate) models: GlobSet,
    pub(crate) headers: BTreeMap<String, String>,
}

/// Gives a key when it is used, so that a new one counts at once and none is kept.
#[async_trait]
pub trait KeySource: fmt::Debug + Send + Sync {
    /// The key. `None` when there is none; what was wrong is the source's to tell the person.
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

/// Headers that the proxy alone decides.
const OURS: [&str; 7] =
    ["authorization", "x-api-key", "x-goog-api-key", "host", "content-length", "transfer-encoding", "connection"];

impl ProviderConfig {
    /// A provider at `base_url`, which is https, or http to this machine; what is behind `?` is dropped. `models` are globs
    /// of the models that may be asked for; without any there is none.
    ///
    /// # Errors
    /// `invalid_input`, without repeating the address.
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

    /// Sends these headers, too.
    ///
    /// # Errors
    /// `invalid_input` for one that is none, or that the proxy alone decides.
    pub fn with_headers(mut self, headers: &BTreeMap<String, String>) -> Result<Self, Failure> {
        for (name, value) in headers {
            let lower = name.to_ascii_lowercase();
            let is_name = hyper::header::HeaderName::from_bytes(lower.as_bytes()).is_ok();
            if !is_name || OURS.contains(&&*lower) || hyper::header::HeaderValue::from_str(value).is_err() {
                return Err(invalid("That is no header that a provider can be sent."));
            }
            self.headers.insert(lower, value.clone());
        }
        Ok(self)
    }
}

/// Whether a provider's `models` name this one, as its route decides it.
///
/// # Errors
/// `invalid_input` for a pattern that is none.
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
    fn a_provider_is_reached_by_https_or_on_this_machine() {
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
    fn headers_that_the_proxy_decides_are_not_a_setting() {
        let with = |name: &str, value: &str| {
            provider("https://a.com").unwrap().with_headers(&[(name.to_owned(), value.to_owned())].into())
        };
        assert!(with("OpenAI-Organization", "org").is_ok());
        for (name, value) in [("Authorization", "x"), ("x-api-key", "x"), ("a b", "x"), ("x", "a\nb")] {
            assert!(with(name, value).is_err(), "{name}");
        }
    }
}
