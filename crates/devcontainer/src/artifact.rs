//! Names of artifacts in a registry.

use coracle_types::failure::{Code, Failure};

/// An artifact: `registry/namespace/name`, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    pub(super) registry: String,
    pub(super) repository: String,
    /// A tag, or `sha256:…`.
    pub(super) reference: String,
}

impl Artifact {
    /// Parses `host[:port]/path[:tag][@sha256:…]`; the default is `:latest`.
    ///
    /// # Errors
    /// The reason, as a fragment.
    pub fn parse(name: &str) -> Result<Self, &'static str> {
        let (named, digest) = name.split_once('@').map_or((name, None), |(named, digest)| (named, Some(digest)));
        let (registry, path) = named.split_once('/').ok_or("it names no registry")?;
        let (repository, tag) = path.split_once(':').map_or((path, "latest"), |it| it);
        let (host, port) = registry.split_once(':').map_or((registry, None), |(host, port)| (host, Some(port)));
        let is_host = host.contains('.') || host == "localhost" || port.is_some();
        let plain = !host.is_empty() && host.bytes().all(|it| it.is_ascii_alphanumeric() || b".-".contains(&it));
        if !is_host || !plain || port.is_some_and(|it| it.parse::<u16>().is_err()) {
            return Err("it names no registry");
        }
        let word = |it: &str| {
            let inner = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"._-".contains(&it);
            let outer = |it: Option<u8>| it.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
            it.bytes().all(inner) && outer(it.bytes().next()) && outer(it.bytes().last())
        };
        if repository.len() > 255 || !repository.split('/').all(word) {
            return Err("it names no artifact of a registry");
        }
        let is_tag = tag.len() <= 128
            && tag.bytes().all(|it| it.is_ascii_alphanumeric() || b"_.-".contains(&it))
            && tag.bytes().next().is_some_and(|it| it.is_ascii_alphanumeric() || it == b'_');
        if !is_tag || digest.is_some_and(|it| !is_digest(it)) {
            return Err("its version is neither a tag nor `@sha256:…`");
        }
        let reference = digest.unwrap_or(tag).to_owned();
        Ok(Self { registry: registry.to_owned(), repository: repository.to_owned(), reference })
    }

    /// Returns the artifact with that digest.
    #[must_use]
    pub fn at(&self, digest: &str) -> Self {
        Self { reference: digest.to_owned(), ..self.clone() }
    }

    pub(super) fn url(&self, rest: &str) -> String {
        // As in engines: a registry on this host has no certificate.
        let scheme = if self.is_local() { "http" } else { "https" };
        format!("{scheme}://{}/v2/{}/{rest}", self.registry, self.repository)
    }

    pub(super) fn is_local(&self) -> bool {
        let host = self.registry.rsplit_once(':').map_or(self.registry.as_str(), |it| it.0);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback())
    }

    pub(super) fn failed(&self, why: impl std::fmt::Display) -> Failure {
        let name = format!("{}/{}", self.registry, self.repository);
        Failure::new(Code::FetchFailed, format!("`{name}` cannot be fetched: {why}.")).detail("registry", name)
    }
}

/// `sha256:` and 64 hex digits.
pub(super) fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_registry_artifact_and_version() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let parsed = |name: &str| Artifact::parse(name).map(|it| (it.url(""), it.reference.clone()));
        let found = |url: &str, reference: &str| Ok((url.to_owned(), reference.to_owned()));
        let go = "https://ghcr.io/v2/devcontainers/features/go/";
        assert_eq!(parsed("ghcr.io/devcontainers/features/go"), found(go, "latest"));
        assert_eq!(parsed("ghcr.io/devcontainers/features/go:1.2"), found(go, "1.2"));
        assert_eq!(parsed(&format!("ghcr.io/devcontainers/features/go:1@{digest}")), found(go, &digest));
        assert_eq!(parsed("localhost:5000/go"), found("http://localhost:5000/v2/go/", "latest"));
        assert_eq!(parsed("127.0.0.1:5000/a/go:1"), found("http://127.0.0.1:5000/v2/a/go/", "1"));
        assert_eq!(parsed("10.0.0.1:5000/go"), found("https://10.0.0.1:5000/v2/go/", "latest"));
        for invalid in [
            "go",
            "features/go",
            "ghcr.io/",
            "ghcr.io/../x",
            "ghcr.io/a//b",
            "ghcr.io/A/b",
            "ghcr.io/a b",
            "ghcr.io/a?x=1",
            "ghcr.io/a:",
            "ghcr.io/a:1/2",
            "ghcr.io:port/a",
            "user@ghcr.io/a",
            "https://ghcr.io/a",
            "ghcr.io/a@sha256:1",
            "ghcr.io/a@md5:00",
        ] {
            assert!(parsed(invalid).is_err(), "{invalid}");
        }
    }
}
