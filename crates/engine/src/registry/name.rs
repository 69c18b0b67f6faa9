//! Finds the registry and repository of an image's name. Pure.

use std::net::Ipv4Addr;

use coracle_host::registry_login::{HUB, HUB_ALIASES, RegistryPath};
use coracle_types::ImageRef;
use url::Url;

use crate::source::{BlobDigest, Result, SourceError};

/// The host of Docker Hub's registry.
const HUB_HOST: &str = "registry-1.docker.io";

/// An image's place in a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RepositoryName {
    /// The registry as images name it, with the port: `docker.io`, `localhost:5000`.
    pub(super) registry: String,
    /// `library/debian`.
    pub(super) repository: String,
    /// Tag or digest.
    pub(super) reference: String,
    /// The digest, if the name has one.
    pub(super) digest: Option<BlobDigest>,
}

impl RepositoryName {
    /// # Errors
    /// [`SourceError::NotFound`] for an image's id, which is unknown to registries.
    pub(super) fn from_image(image: &ImageRef) -> Result<Self> {
        let name = image.completed();
        let nowhere = || SourceError::NotFound { place: "a registry".into(), what: image.to_string() };
        let (registry, rest) = name.as_str().split_once('/').ok_or_else(nowhere)?;
        let (rest, digest) = rest.split_once('@').map_or((rest, None), |it| (it.0, BlobDigest::parse(it.1)));
        let (path, tag) = rest.split_once(':').unwrap_or((rest, "latest"));
        let registry = if HUB_ALIASES.contains(&registry) { HUB } else { registry };
        let official = registry == HUB && !path.contains('/');
        Ok(Self {
            registry: registry.to_owned(),
            repository: if official { format!("library/{path}") } else { path.to_owned() },
            reference: digest.as_ref().map_or(tag, BlobDigest::as_str).to_owned(),
            digest,
        })
    }

    /// Host and port to connect to.
    pub(super) fn host(&self) -> &str {
        if self.registry == HUB { HUB_HOST } else { &self.registry }
    }

    /// Host and port as in messages about an address.
    pub(super) fn host_of_url(&self) -> String {
        self.url("", "").map(|it| super::http::host_of(&it)).unwrap_or_default()
    }

    /// Whether the name of the registry means this machine. Such a registry does not use TLS.
    pub(super) fn is_local(&self) -> bool {
        let host = self.registry.rsplit_once(':').map_or(self.registry.as_str(), |it| it.0);
        is_local_host(host)
    }

    /// The URL of a manifest or blob. `kind` is `manifests` or `blobs`.
    pub(super) fn url(&self, kind: &str, reference: &str) -> Result<Url> {
        let scheme = if self.is_local() { "http" } else { "https" };
        let url = format!("{scheme}://{}/v2/{}/{kind}/{reference}", self.host(), self.repository);
        Url::parse(&url).map_err(|err| SourceError::malformed("name", &err))
    }

    /// The name by which the user's logins are found.
    pub(super) fn login_path(&self) -> RegistryPath<'_> {
        RegistryPath { registry: &self.registry, repository: &self.repository }
    }
}

/// Whether a host name means this machine.
pub(super) fn is_local_host(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|it: Ipv4Addr| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> RepositoryName {
        RepositoryName::from_image(&ImageRef::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn short_names_stand_for_docker_hub_and_its_host() {
        let url = |text: &str| {
            let name = name(text);
            name.url("manifests", &name.reference).unwrap().to_string()
        };
        let hub = "https://registry-1.docker.io/v2";
        assert_eq!(url("debian"), format!("{hub}/library/debian/manifests/latest"));
        assert_eq!(url("a/b:1"), format!("{hub}/a/b/manifests/1"));
        assert_eq!(url("docker.io/debian:12"), format!("{hub}/library/debian/manifests/12"));
        assert_eq!(url("index.docker.io/a/b"), format!("{hub}/a/b/manifests/latest"));
        assert_eq!(url("ghcr.io/a/b/c:x"), "https://ghcr.io/v2/a/b/c/manifests/x");
        assert_eq!(url("localhost/a"), "http://localhost/v2/a/manifests/latest");
        assert_eq!(url("127.0.0.9:5000/a:1"), "http://127.0.0.9:5000/v2/a/manifests/1");
        assert_eq!(url("10.0.0.1:5000/a:1"), "https://10.0.0.1:5000/v2/a/manifests/1");
        assert_eq!(url("localhost.example.org/a:1"), "https://localhost.example.org/v2/a/manifests/1");
    }

    #[test]
    fn a_digest_takes_precedence_over_a_tag_and_an_id_is_refused() {
        let digest = BlobDigest::from_content(b"");
        let pinned = name(&format!("h.example:1/a/b:t@{digest}"));
        assert_eq!((pinned.reference.as_str(), &pinned.digest), (digest.as_str(), &Some(digest.clone())));
        assert_eq!((pinned.registry.as_str(), pinned.repository.as_str()), ("h.example:1", "a/b"));
        let id = ImageRef::parse(digest.as_str()).unwrap();
        assert!(matches!(RepositoryName::from_image(&id), Err(SourceError::NotFound { .. })));
    }
}
