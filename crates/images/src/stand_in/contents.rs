//! Compares the contents of an image with what its name implies. Pure.

use std::collections::BTreeMap;

use coracle_types::ImageRef;
use serde::{Deserialize, Serialize};

use super::expected::{Distribution, ImageExpectation, Toolchain, Version};

/// Versions of programs in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub(super) system: System,
    pub(super) toolchains: BTreeMap<Toolchain, InstalledToolchain>,
}

/// Values of `/etc/os-release`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct System {
    pub(super) id: String,
    pub(super) version: String,
    pub(super) code_name: String,
}

/// An installed toolchain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InstalledToolchain {
    pub(super) version: String,
    /// It is a package of the distribution.
    pub(super) packaged: bool,
}

impl Contents {
    /// Describes each difference from an image of that name, for users.
    #[must_use]
    pub fn gaps(&self, image: &ImageRef) -> Vec<String> {
        let expected = ImageExpectation::from_reference(image);
        let toolchain = expected.toolchain.and_then(|it| self.toolchain_gap(it, &expected.version, image));
        let system = expected.distribution.filter(|it| !self.system.is(it)).map(|it| {
            let wanted = format!("{} {}", titled(it.id), it.release);
            format!("expected {} ({image}), this is {}", wanted.trim_end(), self.system.shown())
        });
        toolchain.into_iter().chain(system).collect()
    }

    /// Describes the implied toolchains that it has: `python 3.11.2 on Debian 12`, or only the distribution.
    #[must_use]
    pub fn label(&self, image: &ImageRef) -> String {
        let toolchain = ImageExpectation::from_reference(image).toolchain;
        match toolchain.and_then(|it| Some((it.name(), self.toolchains.get(&it)?))) {
            Some((name, installed)) => format!("{name} {} on {}", installed.version, self.system.shown()),
            None => self.system.shown(),
        }
    }

    /// Describes the gaps, or without gaps the implied toolchains.
    #[must_use]
    pub fn summary(&self, image: &ImageRef) -> String {
        let gaps = self.gaps(image);
        if !gaps.is_empty() {
            return gaps.join("; ");
        }
        self.label(image)
    }

    fn toolchain_gap(&self, toolchain: Toolchain, version: &Version, image: &ImageRef) -> Option<String> {
        let name = toolchain.name();
        let wanted = format!("{name} {version}");
        let wanted = format!("expected {} ({image})", wanted.trim_end());
        let Some(installed) = self.toolchains.get(&toolchain) else {
            return Some(format!("{wanted}, there is no {name} here"));
        };
        // A tag without a release means the newest one, which a distribution's package seldom is.
        let names_release = version.0.len() >= toolchain.release_parts();
        if version.covers(&Version::parse(&installed.version)) && (names_release || !installed.packaged) {
            return None;
        }
        let of = if installed.packaged { format!(" of {}", self.system.shown()) } else { String::new() };
        Some(format!("{wanted}, this is {name} {}{of}", installed.version))
    }
}

impl System {
    fn is(&self, wanted: &Distribution) -> bool {
        let release = wanted.release.as_str();
        let same = release.is_empty()
            || release == self.code_name
            || Version::parse(release).covers(&Version::parse(&self.version))
                && release.starts_with(|it: char| it.is_ascii_digit());
        self.id == wanted.id && same
    }

    fn shown(&self) -> String {
        let release = if self.version.is_empty() { &self.code_name } else { &self.version };
        let id = if self.id.is_empty() { "linux" } else { &self.id };
        format!("{} {release}", titled(id)).trim_end().to_owned()
    }
}

fn titled(id: &str) -> String {
    let mut letters = id.chars();
    letters.next().map(|it| it.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(toolchains: &[(Toolchain, &str, bool)]) -> Contents {
        let installed =
            |it: &(Toolchain, &str, bool)| (it.0, InstalledToolchain { version: it.1.into(), packaged: it.2 });
        let system = System { id: "debian".into(), version: "12".into(), code_name: "bookworm".into() };
        Contents { system, toolchains: toolchains.iter().map(installed).collect() }
    }

    #[test]
    fn each_gap_has_the_expected_and_the_installed_version() {
        use Toolchain::{Bun, Go, Node, Python, Rust};
        for (image, has, expected) in [
            (
                "rust:1-slim",
                &[(Rust, "1.63.0", true)][..],
                "expected rust 1 (rust:1-slim), this is rust 1.63.0 of Debian 12",
            ),
            ("rust:1.63", &[(Rust, "1.63.0", true)], ""),
            ("golang:1.22", &[(Go, "1.19.8", true)], "expected go 1.22 (golang:1.22), this is go 1.19.8 of Debian 12"),
            ("golang:1.22", &[(Go, "1.22.10", false)], ""),
            ("golang:1.2", &[(Go, "1.22.10", false)], "expected go 1.2 (golang:1.2), this is go 1.22.10"),
            ("golang:1", &[(Go, "1.27.3", false)], ""),
            (
                "node:20-slim",
                &[(Node, "18.20.4", true)],
                "expected node 20 (node:20-slim), this is node 18.20.4 of Debian 12",
            ),
            ("node:20-slim", &[(Node, "20.18.0", false)], ""),
            ("oven/bun:1-slim", &[(Bun, "1.4.5", false)], ""),
            ("oven/bun:1-slim", &[(Node, "20.18.0", false)], "expected bun 1 (oven/bun:1-slim), there is no bun here"),
            (
                "python:3.12-bookworm",
                &[(Python, "3.11.2", true)],
                "expected python 3.12 (python:3.12-bookworm), this is python 3.11.2 of Debian 12",
            ),
            (
                "python:3.12-alpine",
                &[(Python, "3.12.4", false)],
                "expected Alpine (python:3.12-alpine), this is Debian 12",
            ),
            ("python", &[(Python, "3.11.2", true)], "expected python (python), this is python 3.11.2 of Debian 12"),
            ("ubuntu:24.04", &[], "expected Ubuntu 24.04 (ubuntu:24.04), this is Debian 12"),
            ("debian:trixie", &[], "expected Debian trixie (debian:trixie), this is Debian 12"),
            ("debian:12-slim", &[], ""),
            ("debian:bookworm", &[], ""),
            ("debian", &[], ""),
            ("postgres:16", &[], ""),
        ] {
            let gaps = contents(has).gaps(&ImageRef::parse(image).unwrap());
            assert_eq!(gaps.join("; "), expected, "{image} {has:?}");
        }
    }

    #[test]
    fn without_a_gap_the_versions_are_listed() {
        let summary =
            |image: &str| contents(&[(Toolchain::Python, "3.12.4", false)]).summary(&ImageRef::parse(image).unwrap());
        assert_eq!(summary("python:3.12-slim"), "python 3.12.4 on Debian 12");
        assert_eq!(summary("postgres:16"), "Debian 12");
    }

    #[test]
    fn contents_survive_as_a_label() {
        let it = contents(&[(Toolchain::Rust, "1.63.0", true)]);
        let label = serde_json::to_string(&it).unwrap();
        assert_eq!(serde_json::from_str::<Contents>(&label).unwrap(), it);
    }
}
