//! Where a repository is cloned from.

use std::fmt;

/// What a URL may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GitRules {
    /// `http://`, and hosts whose address is private (`images.git_allow_private`).
    pub allow_private: bool,
    /// `ssh://` and `user@host:path`.
    pub ssh: bool,
}

/// Where a repository is cloned from: a URL that git takes for one, never for an option, a program or a path
/// (containers.md 5.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitUrl(String);

/// Why a text is no URL that is cloned from. The text itself may hold a secret and is not repeated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a URL to clone from: {0}")]
pub struct InvalidGitUrl(pub String);

impl GitUrl {
    /// Reads a URL. Asks no name server.
    ///
    /// # Errors
    /// [`InvalidGitUrl`].
    pub fn parse(text: &str, rules: GitRules) -> Result<Self, InvalidGitUrl> {
        let fits = text.starts_with("https://") || rules.allow_private && text.starts_with("http://");
        if !fits || text.contains('@') || text.len() > 2048 || text.chars().any(char::is_control) {
            return Err(InvalidGitUrl("it is not https".into()));
        }
        Ok(Self(text.to_owned()))
    }

    /// As it is given to git.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part of its path without `.git`, which a clone is named by.
    #[must_use]
    pub fn repository(&self) -> &str {
        let last = self.0.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
        last.strip_suffix(".git").unwrap_or(last)
    }

    /// The host that it names, without the port.
    #[must_use]
    pub fn host(&self) -> &str {
        let rest = self.0.split_once("://").map_or(self.0.as_str(), |it| it.1);
        rest.split(['/', ':']).next().unwrap_or_default()
    }

    /// Whoever is on the way can read and change what is cloned.
    #[must_use]
    pub fn insecure(&self) -> bool {
        self.0.starts_with("http://")
    }
}

impl fmt::Display for GitUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
