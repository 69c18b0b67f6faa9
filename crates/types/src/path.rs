//! Paths inside a container.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An absolute path inside a container: no `..`, no control character, no doubled or trailing slash.
///
/// It need not exist. Links in it are resolved in the container.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerPath(String);

/// A text that is not a path inside a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a path inside a container: {why}", value.escape_debug())]
pub struct InvalidPath {
    /// The given text.
    pub value: String,
    /// The reason.
    pub why: &'static str,
}

impl ContainerPath {
    /// Validates and normalises a text.
    ///
    /// # Errors
    /// [`InvalidPath`] if it is relative, has `..` or a control character, or is longer than 4096 bytes.
    pub fn parse(text: impl AsRef<str>) -> Result<Self, InvalidPath> {
        let text = text.as_ref();
        let refuse = |why| Err(InvalidPath { value: text.chars().take(200).collect(), why });
        if !text.starts_with('/') {
            return refuse("it must begin with `/`");
        }
        if text.len() > 4096 {
            return refuse("it is longer than 4096 bytes");
        }
        if text.chars().any(char::is_control) {
            return refuse("it has a control character");
        }
        let parts: Vec<&str> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return refuse("it has `..`");
        }
        Ok(Self(format!("/{}", parts.join("/"))))
    }

    /// The root.
    #[must_use]
    pub fn root() -> Self {
        Self("/".into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part; empty for the root.
    #[must_use]
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The parent directory; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (parent, last) = self.0.rsplit_once('/')?;
        (!last.is_empty()).then(|| Self(if parent.is_empty() { "/".into() } else { parent.into() }))
    }

    /// Resolves a path relative to this one. An absolute `path` is returned unchanged.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn join(&self, path: &str) -> Result<Self, InvalidPath> {
        if path.starts_with('/') { Self::parse(path) } else { Self::parse(format!("{}/{path}", self.0)) }
    }

    /// Whether it is `base` or below it.
    #[must_use]
    pub fn is_beneath(&self, base: &str) -> bool {
        self.0 == base || base == "/" || self.0.strip_prefix(base).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Its parts.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }
}

impl TryFrom<String> for ContainerPath {
    type Error = InvalidPath;
    fn try_from(text: String) -> Result<Self, InvalidPath> {
        Self::parse(text)
    }
}

impl From<ContainerPath> for String {
    fn from(it: ContainerPath) -> Self {
        it.0
    }
}

impl fmt::Display for ContainerPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ContainerPath;

    fn parsed(text: &str) -> Option<String> {
        ContainerPath::parse(text).ok().map(String::from)
    }

    #[test]
    fn paths_are_absolute_and_normalised() {
        assert_eq!(parsed("/a//b/./c/").as_deref(), Some("/a/b/c"));
        assert_eq!(parsed("/").as_deref(), Some("/"));
        for bad in ["", "a", "../x", "/a/../b", "/a\0b", "/a\nb", &format!("/{}", "x".repeat(4096))] {
            assert_eq!(parsed(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn beneath_compares_complete_parts() {
        let path = ContainerPath::parse("/proc2/x").unwrap();
        assert!(!path.is_beneath("/proc") && path.is_beneath("/proc2") && path.is_beneath("/"));
    }

    #[test]
    fn parents_end_at_the_root() {
        let path = ContainerPath::parse("/a/b").unwrap();
        let parent = path.parent().unwrap();
        assert_eq!((parent.as_str(), path.file_name()), ("/a", "b"));
        assert_eq!(parent.parent().unwrap(), ContainerPath::root());
        assert_eq!(ContainerPath::root().parent(), None);
    }

    proptest! {
        #[test]
        fn a_normalised_path_is_stable_and_never_leads_upwards(text in "[/.a\u{e9} -]{0,20}") {
            if let Ok(path) = ContainerPath::parse(&text) {
                prop_assert!(path.parts().all(|part| part != ".."));
                prop_assert_eq!(ContainerPath::parse(path.as_str()).unwrap(), path);
            }
        }
    }
}
