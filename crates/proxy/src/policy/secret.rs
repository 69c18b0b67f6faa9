//! Secrets that the proxy fills in: programs in the container have a placeholder, which is worth nothing elsewhere.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coracle_types::Secret;
use coracle_types::failure::Failure;
use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use hyper::{HeaderMap, Uri};

use super::egress::{EgressHost, HostPattern};
use super::patterns::invalid;
use super::provider::KeySource;

/// A secret, and the requests that get it.
#[derive(Clone, Debug)]
pub struct SecretRule {
    name: String,
    placeholder: String,
    hosts: Vec<HostPattern>,
    places: Vec<SecretPlace>,
    key: Arc<dyn KeySource>,
}

/// The part of a request that may have a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretPlace {
    /// `Authorization` with `Bearer`, or with `token` as GitHub's clients send it.
    Bearer,
    /// `Authorization` with `Basic`: the user or the password.
    Basic,
    /// That header.
    Header(HeaderName),
    /// That parameter of the query.
    Query(String),
}

/// Why a request with a placeholder is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretDenial {
    /// The host is none of the secret's.
    Host,
    /// The placeholder is in another place of the request.
    Place,
    /// The host process has no key.
    Missing,
}

impl SecretPlace {
    /// Parses a list such as `bearer,basic`: `bearer`, `basic`, `header:NAME`, `query:NAME`.
    ///
    /// # Errors
    /// `invalid_input` for another text.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, Failure> {
        text.split(',').map(|it| Self::parse(it.trim())).collect()
    }

    fn parse(text: &str) -> Result<Self, Failure> {
        let is_parameter =
            |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        match text.split_once(':') {
            None if text == "bearer" => return Ok(Self::Bearer),
            None if text == "basic" => return Ok(Self::Basic),
            Some(("header", name)) => {
                if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                    return Ok(Self::Header(name));
                }
            }
            Some(("query", name)) if is_parameter(name) => return Ok(Self::Query(name.to_owned())),
            _ => {}
        }
        Err(invalid("`as` is a list of `bearer`, `basic`, `header:NAME` and `query:NAME`, with commas."))
    }
}

impl SecretRule {
    /// Creates a rule. The placeholder consists of letters, digits, `-` and `_`, so that no encoding changes it.
    ///
    /// # Errors
    /// `invalid_input` for hosts or a placeholder that are none.
    pub fn new(
        name: &str,
        placeholder: &str,
        hosts: &[impl AsRef<str>],
        places: Vec<SecretPlace>,
        key: Arc<dyn KeySource>,
    ) -> Result<Self, Failure> {
        let is_plain = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_');
        if placeholder.len() < 16 || !placeholder.bytes().all(is_plain) {
            return Err(invalid("A placeholder has at least 16 letters and digits."));
        }
        let read: Option<Vec<_>> = hosts.iter().map(|it| host(it.as_ref())).collect();
        let hosts = read.filter(|it| !it.is_empty());
        let hosts =
            hosts.ok_or_else(|| invalid("`hosts` are names, such as `api.example.com` or `*.example.com:8443`."))?;
        Ok(Self { name: name.to_owned(), placeholder: placeholder.to_owned(), hosts, places, key })
    }

    /// Returns its name and its placeholder.
    pub(crate) fn placeholder(&self) -> (String, Secret) {
        (self.name.clone(), Secret::from(self.placeholder.as_str()))
    }

    /// Whether its secret is for that host.
    pub(crate) fn is_for(&self, host: &EgressHost, port: u16) -> bool {
        self.hosts.iter().any(|it| it.contains(host, port))
    }

    fn is_in(&self, text: &[u8]) -> bool {
        memchr::memmem::find(text, self.placeholder.as_bytes()).is_some()
    }

    fn replaced(&self, text: &[u8], key: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + key.len());
        let mut rest = text;
        while let Some(at) = memchr::memmem::find(rest, self.placeholder.as_bytes()) {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(key);
            rest = &rest[at + self.placeholder.len()..];
        }
        out.extend_from_slice(rest);
        out
    }
}

/// Whether a text names hosts that may get a secret: it is only sent over TLS, which needs a name.
#[must_use]
pub fn is_secret_host(text: &str) -> bool {
    host(text).is_some()
}

fn host(text: &str) -> Option<HostPattern> {
    HostPattern::parse(text).filter(|it| !matches!(it, HostPattern::Address(_)))
}

/// A secret that was filled in, with its name, for the filter of the answer.
pub(crate) type FilledSecret = (String, Secret);

/// Fills in the secrets of a request over TLS to that host. Also refuses placeholders where no secret belongs.
pub(crate) async fn fill(
    rules: &[SecretRule],
    host: &EgressHost,
    port: u16,
    headers: &mut HeaderMap,
    uri: &mut Uri,
) -> Result<Vec<FilledSecret>, SecretDenial> {
    let mut filled = Vec::new();
    for rule in rules {
        let mentions = mentions(rule, headers, uri);
        if mentions == 0 {
            continue;
        }
        if !rule.is_for(host, port) {
            return Err(SecretDenial::Host);
        }
        let key = rule.key.key().await.ok_or(SecretDenial::Missing)?;
        let mut put_in = 0;
        for place in &rule.places {
            put_in += put(rule, place, &key, headers, uri)?;
        }
        if put_in != mentions {
            return Err(SecretDenial::Place);
        }
        filled.push((rule.name.clone(), key));
    }
    Ok(filled)
}

/// Refuses a request without TLS that has a placeholder.
pub(crate) fn refuse_in_plain(rules: &[SecretRule], headers: &HeaderMap, uri: &Uri) -> Result<(), SecretDenial> {
    let has_one = rules.iter().any(|it| mentions(it, headers, uri) > 0);
    if has_one { Err(SecretDenial::Host) } else { Ok(()) }
}

/// The number of headers with the placeholder, one more if it is in the address.
fn mentions(rule: &SecretRule, headers: &HeaderMap, uri: &Uri) -> usize {
    let is_in = |it: &HeaderValue| rule.is_in(it.as_bytes()) || basic(it.as_bytes()).is_some_and(|it| rule.is_in(&it));
    let in_address = uri.path_and_query().is_some_and(|it| rule.is_in(it.as_str().as_bytes()));
    headers.values().filter(|it| is_in(it)).count() + usize::from(in_address)
}

/// Replaces the placeholder in one of the secret's places. Returns the number of replaced mentions.
fn put(
    rule: &SecretRule,
    place: &SecretPlace,
    key: &Secret,
    headers: &mut HeaderMap,
    uri: &mut Uri,
) -> Result<usize, SecretDenial> {
    let key = key.reveal();
    match place {
        SecretPlace::Bearer => put_header(rule, headers, &AUTHORIZATION, |value| {
            let (scheme, token) = split_scheme(value)?;
            let is_token = ["bearer", "token"].iter().any(|it| scheme.eq_ignore_ascii_case(it.as_bytes()));
            (is_token && token == rule.placeholder.as_bytes()).then(|| [scheme, b" ", key].concat())
        }),
        SecretPlace::Basic => put_header(rule, headers, &AUTHORIZATION, |value| {
            let plain = basic(value).filter(|it| rule.is_in(it))?;
            let plain = rule.replaced(&plain, key);
            Some([&b"Basic "[..], BASE64_STANDARD.encode(plain).as_bytes()].concat())
        }),
        SecretPlace::Header(name) => {
            put_header(rule, headers, name, |value| rule.is_in(value).then(|| rule.replaced(value, key)))
        }
        SecretPlace::Query(name) => put_query(rule, name, key, uri),
    }
}

fn put_header(
    rule: &SecretRule,
    headers: &mut HeaderMap,
    name: &HeaderName,
    change: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<usize, SecretDenial> {
    let hyper::header::Entry::Occupied(mut values) = headers.entry(name) else { return Ok(0) };
    let mut count = 0;
    for value in values.iter_mut() {
        if let Some(changed) = change(value.as_bytes()) {
            // A key with a line break cannot be sent.
            *value = HeaderValue::from_bytes(&changed).map_err(|_| SecretDenial::Missing)?;
            value.set_sensitive(true);
            count += usize::from(!rule.is_in(&changed));
        }
    }
    Ok(count)
}

fn put_query(rule: &SecretRule, name: &str, key: &[u8], uri: &mut Uri) -> Result<usize, SecretDenial> {
    let Some(query) = uri.query() else { return Ok(0) };
    let mut found = false;
    let parts = query.split('&').map(|part| match part.split_once('=') {
        Some((parameter, value)) if parameter == name && value == rule.placeholder => {
            found = true;
            let encoded: String = url::form_urlencoded::byte_serialize(key).collect();
            format!("{parameter}={encoded}")
        }
        _ => part.to_owned(),
    });
    let query = parts.collect::<Vec<_>>().join("&");
    let whole = format!("{}?{query}", uri.path());
    if !found || rule.is_in(whole.as_bytes()) {
        return Ok(0);
    }
    let mut parts = std::mem::take(uri).into_parts();
    parts.path_and_query = Some(whole.parse().map_err(|_| SecretDenial::Missing)?);
    *uri = Uri::from_parts(parts).map_err(|_| SecretDenial::Missing)?;
    Ok(1)
}

fn split_scheme(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = value.iter().position(|it| *it == b' ')?;
    Some((&value[..at], value[at + 1..].trim_ascii()))
}

/// Decodes the user and password of a header.
fn basic(value: &[u8]) -> Option<Vec<u8>> {
    let (scheme, encoded) = split_scheme(value)?;
    if !scheme.eq_ignore_ascii_case(b"basic") {
        return None;
    }
    BASE64_STANDARD.decode(encoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::FixedKey;

    const PLACEHOLDER: &str = "ghp_placeholder0123456789";

    fn rule(place: &str) -> SecretRule {
        let key = Arc::new(FixedKey(Arc::new(Secret::from("real key+/="))));
        SecretRule::new("T", PLACEHOLDER, &["api.example.com"], SecretPlace::parse_list(place).unwrap(), key).unwrap()
    }

    /// Returns the header `authorization`, or another, and the address with the secret.
    async fn filled(
        place: &str,
        header: (&str, &str),
        uri: &str,
        host: &str,
    ) -> Result<(String, String), SecretDenial> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_bytes(header.0.as_bytes()).unwrap(), header.1.parse().unwrap());
        let (mut uri, host) = (uri.parse().unwrap(), EgressHost::parse(host).unwrap());
        let filled = fill(&[rule(place)], &host, 443, &mut headers, &mut uri).await?;
        assert!(filled.iter().all(|it| it.0 == "T"));
        Ok((String::from_utf8(headers[header.0].as_bytes().to_vec()).unwrap(), uri.to_string()))
    }

    #[tokio::test]
    async fn a_placeholder_is_replaced_in_its_place_only() {
        let bearer = format!("Bearer {PLACEHOLDER}");
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("x-access-token:{PLACEHOLDER}")));
        let real = format!("Basic {}", BASE64_STANDARD.encode("x-access-token:real key+/="));
        let query = format!("/x?a=1&key={PLACEHOLDER}&b=2");
        for (place, header, uri, expected) in [
            ("bearer", ("authorization", &*bearer), "/x", Ok(("Bearer real key+/=", "/x"))),
            ("basic", ("authorization", &*basic), "/x", Ok((&*real, "/x"))),
            ("header:x-api-key", ("x-api-key", PLACEHOLDER), "/x", Ok(("real key+/=", "/x"))),
            ("query:key", ("accept", "*/*"), &*query, Ok(("*/*", "/x?a=1&key=real+key%2B%2F%3D&b=2"))),
            ("bearer,basic", ("authorization", &*basic), "/x", Ok((&*real, "/x"))),
            ("bearer", ("accept", "*/*"), "/x?y", Ok(("*/*", "/x?y"))),
            ("bearer", ("x-other", &*bearer), "/x", Err(SecretDenial::Place)),
            ("bearer", ("authorization", &*bearer), &*query, Err(SecretDenial::Place)),
            ("bearer", ("authorization", &*basic), "/x", Err(SecretDenial::Place)),
            ("query:key", ("accept", "*/*"), &*query.replace("key=", "k="), Err(SecretDenial::Place)),
            ("header:x-api-key", ("accept", "*/*"), &*format!("/{PLACEHOLDER}/x"), Err(SecretDenial::Place)),
        ] {
            let expected = expected.map(|(header, uri): (&str, &str)| (header.to_owned(), uri.to_owned()));
            assert_eq!(filled(place, header, uri, "api.example.com").await, expected, "{place} {header:?} {uri}");
        }
        // Another login has no part in it.
        let (mut headers, mut uri) = (HeaderMap::new(), "/x".parse().unwrap());
        headers.insert(AUTHORIZATION, format!("Basic {}", BASE64_STANDARD.encode("me:own")).parse().unwrap());
        headers.insert("x-other", PLACEHOLDER.parse().unwrap());
        let host = EgressHost::parse("api.example.com").unwrap();
        let filled_in = fill(&[rule("basic")], &host, 443, &mut headers, &mut uri).await;
        assert!(matches!(filled_in, Err(SecretDenial::Place)), "in another header than the login");
        for host in ["evil.com", "api.example.com.evil.com", "example.com"] {
            let refused = filled("bearer", ("authorization", &bearer), "/", host).await;
            assert_eq!(refused, Err(SecretDenial::Host), "{host}");
        }
    }

    #[test]
    fn only_names_can_have_secrets() {
        let key = Arc::new(FixedKey(Arc::new(Secret::from("k"))));
        let with = |placeholder: &str, host: &str| {
            SecretRule::new("T", placeholder, &[host], vec![SecretPlace::Bearer], key.clone()).is_ok()
        };
        assert!(with(PLACEHOLDER, "*.example.com"));
        for (placeholder, host) in [
            ("short", "a.com"),
            ("with space and more text", "a.com"),
            (PLACEHOLDER, "ip:10.0.0.1"),
            (PLACEHOLDER, "com"),
            (PLACEHOLDER, "https://a.com"),
        ] {
            assert!(!with(placeholder, host), "{placeholder} {host}");
        }
        for odd in ["", "Bearer", "header:", "header:a b", "query:", "query:a&b", "sigv4", "bearer,"] {
            assert!(SecretPlace::parse_list(odd).is_err(), "{odd}");
        }
    }
}
