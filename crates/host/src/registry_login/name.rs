//! Selects the logins for a repository. Pure.

/// The name of Docker Hub in images' names.
pub const HUB: &str = "docker.io";

/// Other names of Docker Hub in images' names.
pub const HUB_ALIASES: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];

/// The key of Docker Hub's logins.
const HUB_KEY: &str = "https://index.docker.io/v1/";

/// A repository of a registry.
#[derive(Clone, Copy, Debug)]
pub struct RegistryPath<'a> {
    /// The registry as images name it, with the port; [`HUB`] for Docker Hub.
    pub registry: &'a str,
    /// `library/debian`.
    pub repository: &'a str,
}

impl RegistryPath<'_> {
    /// The key of the registry for helpers.
    pub(super) fn helper_key(&self) -> &str {
        if self.registry == HUB { HUB_KEY } else { self.registry }
    }

    /// Keys of logins in order of preference, in the form of [`normal_key`]: Podman's files may contain a part of the
    /// path.
    pub(super) fn keys(&self) -> Vec<String> {
        let whole = format!("{}/{}", self.registry, self.repository);
        let ends = whole.match_indices('/').map(|it| it.0).chain([whole.len()]);
        let mut keys: Vec<_> = ends.map(|end| whole[..end].to_owned()).collect();
        keys.reverse();
        keys
    }
}

/// Converts the key in a file of logins to the form of [`RegistryPath::keys`].
pub(super) fn normal_key(key: &str) -> String {
    let bare = key.trim_start_matches("https://").trim_start_matches("http://").trim_end_matches('/');
    let bare = bare.strip_suffix("/v1").or_else(|| bare.strip_suffix("/v2")).unwrap_or(bare);
    if HUB_ALIASES.contains(&bare) { HUB.to_owned() } else { bare.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_login_with_the_closest_key_is_used() {
        let keys = |registry, repository| RegistryPath { registry, repository }.keys();
        assert_eq!(keys("quay.io", "a/b"), ["quay.io/a/b", "quay.io/a", "quay.io"]);
        assert_eq!(keys(HUB, "library/debian"), ["docker.io/library/debian", "docker.io/library", "docker.io"]);
        for (key, normal) in [
            ("https://index.docker.io/v1/", "docker.io"),
            ("registry-1.docker.io", "docker.io"),
            ("https://quay.io", "quay.io"),
            ("http://localhost:5000/v2/", "localhost:5000"),
            ("quay.io/a", "quay.io/a"),
        ] {
            assert_eq!(normal_key(key), normal, "{key}");
        }
    }
}
