//! Parses `WWW-Authenticate`: what a registry requires of a request without authorization. Pure.

use hyper::HeaderMap;
use hyper::header::WWW_AUTHENTICATE;

/// A longer header is ignored, in bytes.
const MAX_HEADER: usize = 8 << 10;

/// A way to authorize a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// A token of a token service.
    Bearer { realm: String, service: Option<String> },
    /// User and password.
    Basic,
}

impl Challenge {
    /// Chooses among the challenges of the headers. A token is preferred: the password then goes only to the token
    /// service.
    pub(super) fn parse(headers: &HeaderMap) -> Option<Self> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|it| it.to_str().ok());
        let found: Vec<_> = values.filter(|it| it.len() <= MAX_HEADER).flat_map(parse_header).collect();
        let bearer = found.iter().find(|it| matches!(it, Self::Bearer { .. }));
        bearer.or_else(|| found.first()).cloned()
    }
}

/// A part of a header: `Bearer` begins a challenge, `realm="…"` belongs to the challenge before.
enum Part<'a> {
    Scheme(&'a str),
    Parameter(&'a str, String),
}

fn parse_header(header: &str) -> Vec<Challenge> {
    let mut challenges = Vec::new();
    let mut parameters: Vec<(&str, String)> = Vec::new();
    let mut scheme = None;
    for part in parts(header).into_iter().chain([Part::Scheme("")]) {
        match part {
            Part::Parameter(name, value) => parameters.push((name, value)),
            Part::Scheme(next) => {
                challenges.extend(scheme.and_then(|it| challenge(it, &parameters)));
                parameters.clear();
                scheme = Some(next);
            }
        }
    }
    challenges
}

fn challenge(scheme: &str, parameters: &[(&str, String)]) -> Option<Challenge> {
    let value = |name: &str| parameters.iter().find(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1.clone());
    match scheme.to_ascii_lowercase().as_str() {
        "bearer" => Some(Challenge::Bearer { realm: value("realm")?, service: value("service") }),
        "basic" => Some(Challenge::Basic),
        _ => None,
    }
}

fn parts(header: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = header.trim_start_matches([' ', '\t', ',']);
    while !rest.is_empty() {
        let end = rest.find(['=', ' ', ',', '\t']).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = match after.trim_start().strip_prefix('=') {
            Some(value) => {
                let (value, after) = parse_value(value.trim_start());
                parts.push(Part::Parameter(word, value));
                after
            }
            None => {
                parts.push(Part::Scheme(word));
                after
            }
        };
        rest = rest.trim_start_matches([' ', '\t', ',']);
    }
    parts
}

/// Parses a token or quoted text. Returns the rest too.
fn parse_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(chars.next().map(|it| it.1)),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn parsed(values: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_str(value).unwrap());
        }
        Challenge::parse(&headers)
    }

    fn bearer(realm: &str, service: Option<&str>) -> Option<Challenge> {
        Some(Challenge::Bearer { realm: realm.into(), service: service.map(Into::into) })
    }

    #[test]
    fn challenges_of_registries_are_parsed() {
        let hub =
            r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:a/b:pull""#;
        assert_eq!(parsed(&[hub]), bearer("https://auth.docker.io/token", Some("registry.docker.io")));
        assert_eq!(parsed(&["bearer Realm=https://a/t , service = x"]), bearer("https://a/t", Some("x")));
        assert_eq!(parsed(&[r#"Bearer realm="a\"b,c\\", error="x=y""#]), bearer(r#"a"b,c\"#, None));
        assert_eq!(parsed(&["Basic realm=\"Registry\""]), Some(Challenge::Basic));
        assert_eq!(parsed(&["Basic"]), Some(Challenge::Basic));
    }

    #[test]
    fn a_token_is_preferred_over_a_password() {
        assert_eq!(parsed(&["Basic realm=\"x\", Bearer realm=\"y\""]), bearer("y", None));
        assert_eq!(parsed(&["Basic realm=\"x\"", "Bearer realm=\"y\""]), bearer("y", None));
    }

    #[test]
    fn invalid_headers_are_no_challenge() {
        for bad in ["", ",", "=", "\"", "Negotiate", "Bearer", "Bearer service=\"x\"", "Bearer realm", "realm=\"x\""] {
            assert_eq!(parsed(&[bad]), None, "{bad}");
        }
        assert_eq!(parsed(&["Bearer realm=\"unclosed"]), bearer("unclosed", None));
    }
}
