//! Requests that a rule allows: methods, and a pattern of paths.

use std::collections::BTreeSet;

use globset::GlobMatcher;
use hyper::Method;

use super::patterns::glob;

/// Requests, by method and path.
#[derive(Clone, Debug)]
pub(crate) struct RequestPattern {
    /// All methods if there are none.
    methods: BTreeSet<String>,
    /// All paths without one.
    path: Option<GlobMatcher>,
}

impl PartialEq for RequestPattern {
    fn eq(&self, other: &Self) -> bool {
        let glob = |it: &Self| it.path.as_ref().map(|path| path.glob().clone());
        self.methods == other.methods && glob(self) == glob(other)
    }
}

impl Eq for RequestPattern {}

impl RequestPattern {
    /// Parses `GET,HEAD` and `/path/**`. `*` in a path is one segment or a part of it, `**` is any number.
    pub(crate) fn parse(methods: Option<&str>, path: Option<&str>) -> Option<Self> {
        let is_method = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_uppercase());
        let methods = match methods {
            None | Some("*") => BTreeSet::new(),
            Some(list) => list.split(',').map(|it| is_method(it).then(|| it.to_owned())).collect::<Option<_>>()?,
        };
        let path = match path {
            None => None,
            Some(path) if is_unambiguous(path) && !path.contains(['?', '#', ' ']) => Some(glob(path).ok()?),
            Some(_) => return None,
        };
        Some(Self { methods, path })
    }

    pub(crate) fn matches(&self, method: &Method, path: &str) -> bool {
        let by_method = self.methods.is_empty() || self.methods.contains(method.as_str());
        by_method && self.path.as_ref().is_none_or(|it| is_unambiguous(path) && it.is_match(path))
    }
}

/// Whether a path, as a pattern, matches itself and nothing else.
pub(crate) fn is_literal(path: &str) -> bool {
    is_unambiguous(path)
        && path.len() <= 200
        && path.bytes().all(|it| it.is_ascii_graphic() && !b"*?[]{}!,".contains(&it))
}

/// Whether every server reads a path as it is written. Some decode `%2e`, merge slashes, or treat `\` as one, and then
/// `/allowed/%2e%2e/other` is another path than the one that was checked.
fn is_unambiguous(path: &str) -> bool {
    let Some(decoded) = decoded(path) else { return false };
    let is_encoded = decoded.contains(|it: char| it.is_control() || "./\\%".contains(it));
    let segments = || path.split('/').skip(1);
    let last = segments().count().saturating_sub(1);
    let is_odd = |(n, segment): (usize, &str)| matches!(segment, "." | "..") || (segment.is_empty() && n != last);
    // A parameter behind `;` is a part of the path for some servers, and none for others.
    path.starts_with('/') && !is_encoded && !path.contains(['\\', ';']) && !segments().enumerate().any(is_odd)
}

/// Decodes the encoded bytes of a path. `None` if they are no UTF-8: old servers also decode longer forms of a character,
/// such as `%c0%af` for `/`.
fn decoded(path: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), path);
    while let Some((before, after)) = rest.split_once('%') {
        // What is not encoded stands between what is.
        bytes.extend(before.bytes().map(|_| b' '));
        let digits = after.get(..2).filter(|it| it.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        RequestPattern::parse(None, Some(pattern)).unwrap().matches(&Method::GET, path)
    }

    #[test]
    fn a_path_that_servers_read_differently_matches_nothing() {
        assert!(matches("/a/**", "/a/b/c") && matches("/a/**", "/a/b/") && matches("/a/*", "/a/b%20c"));
        assert!(matches("/a/**", "/a/b%C3%BCcher/%E2%9C%93.png"));
        for odd in [
            "/a/../b",
            "/a/./b",
            "/a//b",
            "//a/b",
            "/a/%2e%2e/b",
            "/a/%2E./b",
            "/a%2fb/c",
            "/a/b%5c..",
            "/a/\\..",
            "/a/..;/b",
            "/a/%252e",
            "/a/%c0%ae%c0%ae/b",
            "/a/%e0%80%af../b",
            "/a/%u002e%u002e/b",
            "/a/%",
            "/a/%0a/b",
            "/a/%ff",
            "a/b",
            "*",
            "",
        ] {
            assert!(!matches("/**", odd) && !matches("/a/**", odd), "{odd}");
        }
    }

    #[test]
    fn a_program_cannot_suggest_a_pattern() {
        assert!(is_literal("/repos/acme/web-1.0/%20x"));
        for odd in ["/**", "/a*", "/a?", "/[a-z]", "/{a,b}", "/a/../b", "/a b", "/\u{202e}a", "/é"] {
            assert!(!is_literal(odd), "{odd}");
        }
        assert!(!is_literal(&format!("/{}", "a".repeat(300))));
    }

    proptest! {
        #[test]
        fn no_path_leaves_the_directory_of_its_rule(path in "/[ab./%2eE\\\\;]{0,20}") {
            if matches("/a/**", &path) {
                let as_url = url::Url::parse(&format!("http://h{path}")).unwrap();
                prop_assert!(as_url.path().starts_with("/a/"), "{path}");
            }
        }
    }
}
