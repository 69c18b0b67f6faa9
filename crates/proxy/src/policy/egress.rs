//! Destinations and requests that are allowed: the grammar of `egress.allow`, and the checks of both.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use coracle_types::failure::{Code, Failure};
use hyper::Method;

use super::request::{RequestPattern, is_literal};

/// The default port of a rule.
const HTTPS: u16 = 443;

/// Presets: names for several rules.
const PRESETS: &[(&str, &[&str])] = &[
    ("npm", &["registry.npmjs.org"]),
    ("pypi", &["pypi.org", "files.pythonhosted.org"]),
    ("crates", &["crates.io", "static.crates.io", "index.crates.io"]),
    ("go", &["proxy.golang.org", "sum.golang.org"]),
    ("debian", &["deb.debian.org:80,443", "security.debian.org:80,443", "snapshot.debian.org:80,443"]),
    (
        "github",
        &[
            "github.com",
            "api.github.com",
            "codeload.github.com",
            "raw.githubusercontent.com",
            "objects.githubusercontent.com",
            "release-assets.githubusercontent.com",
        ],
    ),
];

/// The destinations and requests that are allowed. An empty policy allows none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressPolicy(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    host: HostPattern,
    /// Without one, the rule allows whole connections.
    request: Option<RequestPattern>,
}

/// Hosts with their ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostPattern {
    Name {
        name: String,
        ports: BTreeSet<u16>,
    },
    /// Names with exactly one more label.
    Below {
        name: String,
        ports: BTreeSet<u16>,
    },
    Address(SocketAddr),
}

/// The destination of a program in the container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EgressHost {
    /// Lower-case, A-labels, no trailing dot.
    Name(String),
    Address(IpAddr),
}

/// Why a destination is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    Host,
    Port,
    Ip,
}

impl EgressPolicy {
    /// Parses rules: `name[:port[,port]]`, `*.name`, `ip:<address>[:port]`, or a preset (`npm`, `pypi`, `crates`, `go`,
    /// `debian`, `github`). A name may have methods before it and a path behind it: `GET,HEAD name/path/**`. Then only
    /// such requests are allowed, and the proxy ends TLS to see them.
    ///
    /// # Errors
    /// `invalid_input`, with the rule that cannot be parsed. The caller then has to allow nothing.
    pub fn parse<T: AsRef<str>>(rules: &[T]) -> Result<Self, Failure> {
        let mut read = Vec::new();
        for rule in rules.iter().map(AsRef::as_ref) {
            let preset = PRESETS.iter().find(|it| it.0 == rule).map(|it| it.1);
            for text in preset.unwrap_or(&[rule]) {
                read.push(Rule::parse(text).ok_or_else(|| unreadable(rule))?);
            }
        }
        Ok(Self(read))
    }

    /// The rules of both.
    #[must_use]
    pub fn with(&self, more: &Self) -> Self {
        Self(self.0.iter().chain(&more.0).cloned().collect())
    }

    /// Checks a destination. A name that is allowed may still resolve to an address that is not.
    pub(crate) fn check(&self, host: &EgressHost, port: u16) -> Result<(), Denial> {
        let about: Vec<_> = self.0.iter().filter(|it| it.host.is_about(host)).collect();
        let allowed = about.iter().any(|it| it.host.has_port(port));
        match host {
            _ if allowed => Ok(()),
            _ if !about.is_empty() => Err(Denial::Port),
            EgressHost::Name(_) => Err(Denial::Host),
            EgressHost::Address(_) => Err(Denial::Ip),
        }
    }

    /// Whether a destination is allowed for some requests only.
    pub(crate) fn checks_requests(&self, host: &EgressHost, port: u16) -> bool {
        self.about(host, port).all(|it| it.request.is_some())
    }

    /// Whether a request to that destination is allowed. `path` has no query.
    pub(crate) fn allows_request(&self, host: &EgressHost, port: u16, method: &Method, path: &str) -> bool {
        self.about(host, port).any(|it| it.request.as_ref().is_none_or(|allowed| allowed.matches(method, path)))
    }

    /// Returns the rule that allows just that request to a host and port. There is none if a pattern would be ambiguous.
    pub(crate) fn rule_for(method: &Method, host: &str, path: &str) -> Option<String> {
        let rule = format!("{method} {host}{path}");
        (is_literal(path) && Self::parse(&[&rule]).is_ok()).then_some(rule)
    }

    fn about(&self, host: &EgressHost, port: u16) -> impl Iterator<Item = &Rule> {
        self.0.iter().filter(move |it| it.host.is_about(host) && it.host.has_port(port))
    }

    /// Whether a rule contains the address itself: then it may be a private one.
    pub(crate) fn names(&self, at: SocketAddr) -> bool {
        self.check(&EgressHost::Address(at.ip()), at.port()).is_ok()
    }
}

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        let (methods, rest) = text.split_once(' ').map_or((None, text), |(methods, rest)| (Some(methods), rest));
        let (host, path) = match rest.find('/') {
            Some(at) => (&rest[..at], Some(&rest[at..])),
            None => (rest, None),
        };
        let host = HostPattern::parse(host)?;
        if methods.is_none() && path.is_none() {
            return Some(Self { host, request: None });
        }
        // TLS is ended with a certificate for a name.
        let is_named = !matches!(host, HostPattern::Address(_));
        let request = RequestPattern::parse(methods, path).filter(|_| is_named)?;
        Some(Self { host, request: Some(request) })
    }
}

impl HostPattern {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(address) = text.strip_prefix("ip:") {
            let bare = |it: &str| it.trim_start_matches('[').trim_end_matches(']').parse().ok();
            let bare = bare(address).map(|it: IpAddr| SocketAddr::new(it, HTTPS));
            let at: SocketAddr = bare.or_else(|| address.parse().ok())?;
            return Some(Self::Address(SocketAddr::new(at.ip().to_canonical(), at.port())));
        }
        let (name, ports) = match text.split_once(':') {
            None => (text, BTreeSet::from([HTTPS])),
            Some((name, ports)) => (name, ports.split(',').map(port).collect::<Option<_>>()?),
        };
        let (below, name) = name.strip_prefix("*.").map_or((false, name), |it| (true, it));
        let EgressHost::Name(name) = EgressHost::parse(name)? else { return None };
        // `*.com` would allow half of the internet.
        if !name.contains('.') && (below || name != "localhost") {
            return None;
        }
        Some(if below { Self::Below { name, ports } } else { Self::Name { name, ports } })
    }

    /// Whether it contains the host, perhaps with other ports.
    fn is_about(&self, host: &EgressHost) -> bool {
        match (self, host) {
            (Self::Name { name, .. }, EgressHost::Name(host)) => name == host,
            (Self::Below { name, .. }, EgressHost::Name(host)) => {
                host.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == name)
            }
            (Self::Address(at), EgressHost::Address(host)) => at.ip() == host.to_canonical(),
            _ => false,
        }
    }

    fn has_port(&self, port: u16) -> bool {
        match self {
            Self::Name { ports, .. } | Self::Below { ports, .. } => ports.contains(&port),
            Self::Address(at) => at.port() == port,
        }
    }

    pub(crate) fn contains(&self, host: &EgressHost, port: u16) -> bool {
        self.is_about(host) && self.has_port(port)
    }
}

impl EgressHost {
    /// Parses a name or an address as browsers do, so that no spelling of an address counts as a name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let bracketed = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        if let Some(address) = bracketed {
            return address.parse().ok().map(|it: std::net::Ipv6Addr| Self::Address(it.into()));
        }
        let plain = |it: char| it.is_alphanumeric() || "-._".contains(it);
        if text.is_empty() || text.len() > 253 || text.ends_with('.') || !text.chars().all(plain) {
            return None;
        }
        let url = url::Url::parse(&format!("http://{text}/")).ok()?;
        let host = url.host_str()?;
        let labels = || host.split('.').all(|it| (1..=63).contains(&it.len()));
        match host.parse::<IpAddr>() {
            Ok(address) => Some(Self::Address(address)),
            Err(_) => labels().then(|| Self::Name(host.to_owned())),
        }
    }
}

impl fmt::Display for EgressHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|it| *it > 0 && !text.starts_with('+'))
}

fn unreadable(rule: &str) -> Failure {
    let rule: String = rule.chars().take(100).flat_map(char::escape_debug).collect();
    Failure::new(Code::InvalidInput, format!("`{rule}` is no rule of `egress.allow`."))
        .hint("write `name`, `name:port,port`, `*.name`, `ip:address:port`, `GET name/path/**`, or a preset: npm, pypi, crates, go, debian, github")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checked(rules: &[&str], host: &str, port: u16) -> Result<(), Denial> {
        EgressPolicy::parse(rules).unwrap().check(&EgressHost::parse(host).unwrap(), port)
    }

    #[test]
    fn x61_names_ports_and_addresses_need_a_rule() {
        let rules = [
            "example.com",
            "deb.example:80,443",
            "*.below.org",
            "ip:10.0.0.7:8080",
            "ip:[fd00::1]",
            "bücher.de",
            "pypi",
        ];
        for (host, port, expected) in [
            ("example.com", 443, Ok(())),
            ("EXAMPLE.com.", 443, Ok(())),
            ("example.com", 80, Err(Denial::Port)),
            ("www.example.com", 443, Err(Denial::Host)),
            ("example.com.evil.net", 443, Err(Denial::Host)),
            ("deb.example", 80, Ok(())),
            ("deb.example", 22, Err(Denial::Port)),
            ("a.below.org", 443, Ok(())),
            ("a.b.below.org", 443, Err(Denial::Host)),
            ("below.org", 443, Err(Denial::Host)),
            ("10.0.0.7", 8080, Ok(())),
            ("10.0.0.7", 443, Err(Denial::Port)),
            ("10.0.0.8", 8080, Err(Denial::Ip)),
            ("[::ffff:10.0.0.7]", 8080, Ok(())),
            ("0x0a.7", 8080, Ok(())),
            ("[fd00::1]", 443, Ok(())),
            ("xn--bcher-kva.de", 443, Ok(())),
            ("files.pythonhosted.org", 443, Ok(())),
            ("registry.npmjs.org", 443, Err(Denial::Host)),
        ] {
            assert_eq!(checked(&rules, host, port), expected, "{host}:{port}");
        }
    }

    #[test]
    fn x62_an_empty_list_allows_nothing_and_an_invalid_one_is_an_error() {
        assert_eq!(checked(&[], "example.com", 443), Err(Denial::Host));
        for odd in [
            "",
            "*",
            "*.com",
            "**.a.b",
            "a.*.b",
            "http://a.b",
            "get a.b",
            "GET  a.b",
            "GET",
            "GET ip:10.0.0.7/x",
            "ip:10.0.0.7/x",
            "GET npm",
            "a.b/[",
            "a.b/x/../y",
            "a.b/x?y",
            "a.b:",
            "a.b:0",
            "a.b:65536",
            "a.b:1,",
            "a.b:+1",
            "ip:",
            "ip:x",
            "ip:1.2.3.4:0x",
            "a b.c",
            "u@a.b",
            "Npm",
            "127.0.0.1",
            "a..b",
            ".a.b",
            "a.b\n",
        ] {
            assert!(EgressPolicy::parse(&["example.com", odd]).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_rule_with_a_method_or_a_path_allows_such_requests_only() {
        let rules = [
            "GET,HEAD api.example.com/repos/acme/**",
            "POST api.example.com/v1/chat/completions",
            "files.example.com/public/*",
            "open.example.com",
            "GET open.example.com/x",
            "GET deb.example.com:80",
        ];
        let policy = EgressPolicy::parse(&rules).unwrap();
        let host = |name: &str| EgressHost::parse(name).unwrap();
        for (method, name, path, expected) in [
            ("GET", "api.example.com", "/repos/acme/web/issues", true),
            ("HEAD", "api.example.com", "/repos/acme/web", true),
            ("POST", "api.example.com", "/repos/acme/web/issues", false),
            ("GET", "api.example.com", "/repos/other/web", false),
            ("GET", "api.example.com", "/repos/acme", false),
            ("POST", "api.example.com", "/v1/chat/completions", true),
            ("POST", "api.example.com", "/v1/chat/completions/", false),
            ("DELETE", "files.example.com", "/public/a", true),
            ("GET", "files.example.com", "/public/a/b", false),
            ("PATCH", "open.example.com", "/anything", true),
        ] {
            let method = method.parse().unwrap();
            assert_eq!(policy.allows_request(&host(name), 443, &method, path), expected, "{method} {name}{path}");
        }
        assert_eq!(policy.check(&host("api.example.com"), 443), Ok(()), "the connection is");
        assert!(policy.checks_requests(&host("api.example.com"), 443));
        assert!(!policy.checks_requests(&host("open.example.com"), 443), "another rule allows all of it");
        assert!(policy.checks_requests(&host("deb.example.com"), 80));
    }

    proptest! {
        #[test]
        fn only_names_of_the_rule_are_allowed(host in "[a-zA-Z0-9.*_-]{0,30}") {
            let policy = EgressPolicy::parse(&["example.com", "*.below.org"]).unwrap();
            if let Some(host) = EgressHost::parse(&host) && policy.check(&host, 443).is_ok() {
                let name = host.to_string();
                let below = name.strip_suffix(".below.org").is_some_and(|it| !it.is_empty() && !it.contains('.'));
                prop_assert!(name == "example.com" || below, "{}", name);
            }
        }

        #[test]
        fn parsing_a_name_is_idempotent(text in "\\PC{0,40}") {
            if let Some(host) = EgressHost::parse(&text) {
                let again = match &host {
                    EgressHost::Address(IpAddr::V6(it)) => EgressHost::parse(&format!("[{it}]")),
                    host => EgressHost::parse(&host.to_string()),
                };
                prop_assert_eq!(again, Some(host));
            }
        }
    }
}
