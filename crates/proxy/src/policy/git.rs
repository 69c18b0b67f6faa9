//! The repositories that a container may access, and the refs that it may push to.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_host::git_url::GitUrl;
use coracle_types::Secret;
use coracle_types::failure::Failure;
use globset::GlobSet;
use serde::{Deserialize, Serialize};

use super::egress::EgressHost;
use super::patterns::{globs, invalid};

/// The base URL of git's routes in the container.
const ROUTES: &str = "http://127.0.0.1:3129/proxy/v1/git/http";

/// How git in the container is authenticated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GitMode {
    /// The proxy adds credentials to requests, so the container has none.
    #[default]
    Proxy,
    /// Git in the container gets the credentials of allowed hosts and repositories. The proxy then cannot restrict
    /// pushes.
    Credential,
    /// There are no git routes.
    Off,
}

/// The settings of git access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GitSettings {
    /// How git is authenticated.
    pub mode: GitMode,
    /// Names of hosts, with a port if it is not the default; `http://name` for one without TLS, which needs
    /// `allow_private`.
    pub hosts: Vec<String>,
    /// Globs of `host/owner/name`.
    pub repos: Vec<String>,
    /// Globs of full refs that may be pushed to; none means fetch only.
    pub push: Vec<String>,
    /// Hosts may be in private networks.
    pub allow_private: bool,
}

impl GitSettings {
    /// Fills in hosts and repositories that are not configured, each separately, from the URL of a repository. A URL of
    /// another protocol than http changes nothing.
    #[must_use]
    pub fn or_own(mut self, url: &str) -> Self {
        let rules = coracle_host::git_url::GitRules { allow_private: self.allow_private, ssh: true };
        let Ok(url) = GitUrl::parse(url, rules) else { return self };
        let Some((host, path)) = own(&url) else { return self };
        let Ok(parsed) = GitHost::parse(&host, self.allow_private) else { return self };
        if self.hosts.is_empty() {
            self.hosts = vec![host];
        }
        if self.repos.is_empty() {
            self.repos = vec![format!("{}/{path}", parsed.name)];
        }
        self
    }
}

/// Returns the configured form of the host, and the path without `.git`. A repository has the same path over ssh as
/// over https, on hosts that serve both; a host with its own ssh port may have another https port.
fn own(url: &GitUrl) -> Option<(String, &str)> {
    let (text, host) = (url.as_str(), url.host());
    let (host, path) = if url.is_ssh() {
        let path = match text.split_once("://") {
            Some((_, rest)) => rest.split_once('/')?.1,
            None => text.split_once(':')?.1,
        };
        (Some(host.to_owned()).filter(|_| url.port() == 22)?, path)
    } else {
        let (_, rest) = text.split_once("://")?;
        let (authority, path) = rest.split_once('/')?;
        let authority = authority.rsplit('@').next()?;
        (if url.insecure() { format!("http://{authority}") } else { authority.to_owned() }, path)
    };
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    // A plain path contains no pattern characters either.
    is_plain(path).then_some((host, path))
}

/// The parsed settings.
#[derive(Clone, Debug)]
pub struct GitRules {
    pub(crate) mode: GitMode,
    hosts: Vec<GitHost>,
    repos: GlobSet,
    pub(crate) push: GlobSet,
    pub(crate) allow_private: bool,
    pub(crate) credentials: Arc<dyn GitCredentials>,
}

#[derive(Clone, Debug)]
pub(crate) struct GitHost {
    /// With its port, if that is not the default.
    pub(crate) name: String,
    pub(crate) scheme: &'static str,
    pub(crate) address: Option<IpAddr>,
}

/// Provides the user's credentials for git.
#[async_trait]
pub trait GitCredentials: fmt::Debug + Send + Sync {
    /// Returns the credentials for `scheme://host/path`. Without any, the request is sent without. Credentials for
    /// https are not used for http.
    async fn login(&self, scheme: &str, host: &str, path: &str) -> Option<GitLogin>;
}

/// A user name and its password.
#[derive(Debug)]
pub struct GitLogin {
    /// The name.
    pub username: String,
    /// The password, or a token.
    pub password: Secret,
}

/// A source without credentials.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCredentials;

#[async_trait]
impl GitCredentials for NoCredentials {
    async fn login(&self, _: &str, _: &str, _: &str) -> Option<GitLogin> {
        None
    }
}

impl GitRules {
    /// # Errors
    /// `invalid_input` for an invalid host or pattern.
    pub fn new(settings: &GitSettings, credentials: Arc<dyn GitCredentials>) -> Result<Self, Failure> {
        let host = |it: &String| GitHost::parse(it, settings.allow_private);
        Ok(Self {
            mode: settings.mode,
            hosts: settings.hosts.iter().map(host).collect::<Result<_, _>>()?,
            repos: globs(&settings.repos, true)?,
            push: globs(&settings.push, true)?,
            allow_private: settings.allow_private,
            credentials,
        })
    }

    pub(crate) fn host(&self, name: &str) -> Option<&GitHost> {
        self.hosts.iter().find(|it| it.name.eq_ignore_ascii_case(name))
    }

    /// Whether a repository is allowed, by its path with or without `.git`.
    pub(crate) fn has(&self, host: &GitHost, path: &str) -> bool {
        let bare = path.strip_suffix(".git").unwrap_or(path);
        self.repos.is_match(format!("{}/{bare}", host.name)) || self.repos.is_match(format!("{}/{path}", host.name))
    }

    /// Renders git's configuration in the container: it rewrites URLs to the proxy and uses the proxy as credential
    /// helper.
    #[must_use]
    pub fn config(&self) -> String {
        let mut text = String::from("[credential]\n\thelper =\n\thelper = /.coracle/guest git-credential\n");
        text += "\tuseHttpPath = true\n";
        for host in self.hosts.iter().filter(|_| self.mode == GitMode::Proxy) {
            let GitHost { name, scheme, .. } = host;
            text += &format!("[url \"{ROUTES}/{name}/\"]\n\tinsteadOf = {scheme}://{name}/\n");
            let bare = name.split(':').next().unwrap_or(name);
            if bare == name {
                text += &format!("\tinsteadOf = ssh://git@{name}/\n\tinsteadOf = git@{name}:\n");
            }
        }
        text
    }
}

impl GitHost {
    fn parse(text: &str, allow_private: bool) -> Result<Self, Failure> {
        let odd = || invalid("`git.hosts` are names of hosts, with a port if need be.");
        let (scheme, name) = match text.split_once("://") {
            None => ("https", text),
            Some(("https", name)) => ("https", name),
            Some(("http", name)) if allow_private => ("http", name),
            Some(_) => return Err(odd().hint("http needs `images.git_allow_private`")),
        };
        let (host, port) = match name.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host, Some(port)),
            _ => (name, None),
        };
        let host = EgressHost::parse(host).ok_or_else(odd)?;
        let port = port.map(|it| it.parse().ok().filter(|it: &u16| *it > 0).ok_or_else(odd)).transpose()?;
        let address = if let EgressHost::Address(it) = host { Some(it) } else { None };
        if address.is_some_and(|it| it.is_ipv6()) {
            return Err(odd());
        }
        let name = port.map_or(host.to_string(), |port| format!("{host}:{port}"));
        Ok(Self { name, scheme, address })
    }
}

/// Whether a repository's path has only one possible interpretation.
pub(crate) fn is_plain(path: &str) -> bool {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b"-._~+@/".contains(&it);
    let part = |it: &str| !it.is_empty() && it != "." && it != "..";
    path.len() <= 500 && path.bytes().all(plain) && path.split('/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(hosts: &[&str], repos: &[&str]) -> Result<GitRules, Failure> {
        let texts = |it: &[&str]| it.iter().copied().map(str::to_owned).collect();
        let settings = GitSettings { hosts: texts(hosts), repos: texts(repos), ..GitSettings::default() };
        GitRules::new(&settings, Arc::new(NoCredentials))
    }

    #[test]
    fn a_repository_is_reached_only_on_its_host_and_by_its_path() {
        let rules = rules(&["GitHub.com", "git.example.com:8443"], &["github.com/owner/*", "git.example.com:8443/a/b"]);
        let rules = rules.unwrap();
        let has = |host: &str, path: &str| rules.host(host).is_some_and(|host| rules.has(host, path));
        assert!(has("github.com", "owner/name") && has("github.com", "owner/name.git") && has("GITHUB.com", "owner/x"));
        assert!(has("git.example.com:8443", "a/b.git"));
        for (host, path) in [
            ("github.com", "other/name"),
            ("github.com", "owner/name/sub"),
            ("github.com", "owner"),
            ("git.example.com", "a/b"),
            ("evil.com", "owner/name"),
        ] {
            assert!(!has(host, path), "{host}/{path}");
        }
        for odd in ["owner/../other", "a//b", "", "/a", "a/", "a/%2e%2e/b", "a?b", "a b", "ä"] {
            assert!(!is_plain(odd), "{odd}");
        }
    }

    #[test]
    fn a_host_is_a_name_and_plain_http_is_a_setting() {
        for bad in ["", "http://a.com", "ssh://a.com", "a.com/x", "u@a.com", "a.com:0", "a.com:x", "[::1]", "a b"] {
            assert!(rules(&[bad], &[]).is_err(), "{bad}");
        }
        let settings =
            GitSettings { hosts: vec!["http://127.0.0.1:80".into()], allow_private: true, ..GitSettings::default() };
        assert!(GitRules::new(&settings, Arc::new(NoCredentials)).is_ok());
    }

    #[test]
    fn the_default_is_the_repository_of_the_sandbox() {
        let of = |settings: GitSettings, url: &str| {
            let it = settings.or_own(url);
            (it.hosts.join(" "), it.repos.join(" "))
        };
        let pair = |host: &str, repo: &str| (host.to_owned(), repo.to_owned());
        let none = GitSettings::default;
        for url in [
            "https://github.com/owner/name.git",
            "https://github.com/owner/name",
            "https://github.com/owner/name/",
            "ssh://git@github.com/owner/name.git",
            "git@github.com:owner/name.git",
        ] {
            assert_eq!(of(none(), url), pair("github.com", "github.com/owner/name"), "{url}");
        }
        assert_eq!(of(none(), "https://e.com:8443/a.git"), pair("e.com:8443", "e.com:8443/a"));
        let private = || GitSettings { allow_private: true, ..none() };
        assert_eq!(of(private(), "http://127.0.0.1:90/web.git"), pair("http://127.0.0.1:90", "127.0.0.1:90/web"));
        for url in ["http://127.0.0.1:90/web.git", "/home/me/web", "ssh://git@e.com:2222/a", "https://e.com/a*b", ""] {
            assert_eq!(of(none(), url), pair("", ""), "{url}");
        }
        // Configured values replace the defaults.
        let set = GitSettings { repos: vec!["github.com/o/*".into()], ..none() };
        assert_eq!(of(set, "https://github.com/a/b"), pair("github.com", "github.com/o/*"), "each separately");
        let set = GitSettings { hosts: vec!["e.com".into()], ..none() };
        assert_eq!(of(set, "https://github.com/a/b"), pair("e.com", "github.com/a/b"));
    }

    #[test]
    fn urls_of_allowed_hosts_are_rewritten_to_the_proxy() {
        let text = rules(&["github.com", "a.com:8443"], &[]).unwrap().config();
        let route = "[url \"http://127.0.0.1:3129/proxy/v1/git/http/github.com/\"]";
        assert!(text.contains(route), "{text}");
        for one in ["https://github.com/", "ssh://git@github.com/", "git@github.com:", "https://a.com:8443/"] {
            assert!(text.contains(&format!("\tinsteadOf = {one}\n")), "{text}");
        }
        assert!(text.contains("helper = /.coracle/guest git-credential\n"), "{text}");
    }
}
