//! Parses what the name of an image implies. Pure.

use std::fmt;

use coracle_types::ImageRef;
use serde::{Deserialize, Serialize};

/// A language whose official image can be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Toolchain {
    Bun,
    Go,
    Node,
    Python,
    Rust,
}

impl Toolchain {
    pub(crate) const ALL: [Self; 5] = [Self::Bun, Self::Go, Self::Node, Self::Python, Self::Rust];

    /// Its name for users.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bun => "bun",
            Self::Go => "go",
            Self::Node => "node",
            Self::Python => "python",
            Self::Rust => "rust",
        }
    }

    /// The program that prints its version.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Bun => "bun",
            Self::Go => "go",
            Self::Node => "node",
            Self::Python => "python",
            Self::Rust => "rustc",
        }
    }

    /// How many parts of a version identify a release. A tag with fewer parts means the newest one.
    pub(super) fn release_parts(self) -> usize {
        match self {
            Self::Bun | Self::Node => 1,
            Self::Go | Self::Python | Self::Rust => 2,
        }
    }

    fn of_repository(name: &str) -> Option<Self> {
        Some(match name {
            "bun" => Self::Bun,
            "golang" => Self::Go,
            "node" => Self::Node,
            "python" => Self::Python,
            "rust" => Self::Rust,
            _ => return None,
        })
    }
}

/// Numbers separated by dots, as many as a tag has. Stored as text, since `24.04` is not `24.4`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Version(pub(super) Vec<String>);

impl Version {
    pub(super) fn parse(text: &str) -> Self {
        let digits = |it: &&str| !it.is_empty() && it.chars().all(|it| it.is_ascii_digit());
        Self(text.split('.').take_while(digits).map(str::to_owned).collect())
    }

    /// Whether a longer version belongs to this release.
    pub(super) fn covers(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Returns the first parts.
    pub(super) fn cut(&self, parts: usize) -> Self {
        Self(self.0.iter().take(parts).cloned().collect())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// A distribution and its release: a number or a code name, or empty for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Distribution {
    pub(super) id: &'static str,
    pub(super) release: String,
}

/// What the name of an image implies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageExpectation {
    pub(crate) toolchain: Option<Toolchain>,
    pub(crate) version: Version,
    pub(super) distribution: Option<Distribution>,
}

const DISTRIBUTIONS: [&str; 4] = ["alpine", "debian", "fedora", "ubuntu"];

/// Code names at the end of tags of official images.
const CODE_NAMES: [(&str, &str); 6] = [
    ("bullseye", "debian"),
    ("bookworm", "debian"),
    ("trixie", "debian"),
    ("forky", "debian"),
    ("jammy", "ubuntu"),
    ("noble", "ubuntu"),
];

impl ImageExpectation {
    pub(crate) fn from_reference(image: &ImageRef) -> Self {
        let whole = image.as_str().split('@').next().unwrap_or_default();
        let last = whole.rsplit('/').next().unwrap_or_default();
        let (name, tag) = last.split_once(':').unwrap_or((last, "latest"));
        let toolchain = Toolchain::of_repository(name);
        let words = || tag.split('-');
        let named = DISTRIBUTIONS.iter().find(|it| **it == name);
        let distribution = match (named, toolchain) {
            (Some(id), _) => {
                let release = words().next().filter(|it| !matches!(*it, "latest" | "rolling" | "stable" | "edge"));
                Some(Distribution { id, release: release.unwrap_or_default().to_owned() })
            }
            (None, Some(_)) => words().find_map(variant),
            (None, None) => None,
        };
        let version = toolchain.and_then(|_| words().next()).map(Version::parse).unwrap_or_default();
        Self { toolchain, version, distribution }
    }
}

/// Parses the distribution in `slim-bookworm` and `alpine3.20`.
fn variant(word: &str) -> Option<Distribution> {
    if let Some(release) = word.strip_prefix("alpine") {
        return Some(Distribution { id: "alpine", release: release.to_owned() });
    }
    let (name, id) = CODE_NAMES.iter().find(|it| it.0 == word)?;
    Some(Distribution { id, release: (*name).to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_image_implies_its_contents() {
        for (image, expected) in [
            ("python:3.12-slim", "python 3.12"),
            ("python:3.12-bookworm", "python 3.12, debian bookworm"),
            (
                "docker.io/library/python:3.12.4-slim-bullseye@sha256:0000000000000000000000000000000000000000000000000000000000000000",
                "python 3.12.4, debian bullseye",
            ),
            ("mirror.example:5000/python", "python "),
            ("python:3.13.0rc1-alpine3.20", "python 3.13, alpine 3.20"),
            ("node:20-slim", "node 20"),
            ("node:lts-alpine", "node , alpine "),
            ("golang:1.22", "go 1.22"),
            ("rust:1-slim", "rust 1"),
            ("oven/bun:1-slim", "bun 1"),
            ("ubuntu:24.04", "ubuntu 24.04"),
            ("debian:bookworm-slim", "debian bookworm"),
            ("debian", "debian "),
            ("example/python-app:3", ""),
            ("postgres:16", ""),
        ] {
            let it = ImageExpectation::from_reference(&ImageRef::parse(image).unwrap());
            let toolchain = it.toolchain.map(|tool| format!("{} {}", tool.name(), it.version));
            let system = it.distribution.map(|it| format!("{} {}", it.id, it.release));
            let shown: Vec<String> = toolchain.into_iter().chain(system).collect();
            assert_eq!(shown.join(", "), expected, "{image}");
        }
    }
}
