//! The platform of this host, and the selection among an index's manifests.

use std::fmt;

use serde::Deserialize;

use super::configuration::or_default;
use super::{Descriptor, ImageError, Result};

/// Operating system, architecture and its variant, by OCI's names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Platform {
    /// The operating system.
    #[serde(default, deserialize_with = "or_default")]
    pub os: String,
    /// The processor.
    #[serde(default, deserialize_with = "or_default")]
    pub architecture: String,
    /// The variant of the processor.
    #[serde(default, deserialize_with = "or_default")]
    pub variant: String,
}

impl Platform {
    /// The platform of this program.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", ""),
            "x86" => ("386", ""),
            "aarch64" => ("arm64", "v8"),
            "arm" => ("arm", "v7"),
            "powerpc64" => ("ppc64le", ""),
            "loongarch64" => ("loong64", ""),
            other => (other, ""),
        };
        Self { os: "linux".into(), architecture: architecture.into(), variant: variant.into() }
    }

    /// Variants that run here, best first. An empty one means the minimal one of its architecture.
    fn variants(&self) -> &[&str] {
        match (self.architecture.as_str(), self.variant.as_str()) {
            ("amd64", _) => &["", "v1"],
            ("arm64", _) => &["v8", "", "v8.0"],
            ("arm", "v7") => &["v7", "", "v6", "v5"],
            _ => &[""],
        }
    }

    /// Ranks an image's platform. `None` if it does not run here.
    pub(crate) fn rank(&self, image: &Self) -> Option<usize> {
        let same = image.os == self.os && image.architecture == self.architecture;
        same.then(|| self.variants().iter().position(|it| *it == image.variant))?
    }

    /// Selects from an index's manifests. One without a platform is accepted if it is the only one.
    ///
    /// # Errors
    /// [`ImageError::NoPlatform`].
    pub fn choose<'a>(&self, manifests: &'a [Descriptor]) -> Result<&'a Descriptor> {
        if let [only] = manifests
            && only.platform.is_none()
        {
            return Ok(only);
        }
        let ranked = manifests.iter().filter_map(|it| Some((self.rank(it.platform.as_ref()?)?, it)));
        ranked.min_by_key(|(rank, _)| *rank).map(|(_, it)| it).ok_or_else(|| self.unavailable(manifests))
    }

    /// The error for an index without an image for this platform.
    pub(crate) fn unavailable(&self, manifests: &[Descriptor]) -> ImageError {
        let mut offered: Vec<_> =
            manifests.iter().filter_map(|it| it.platform.as_ref()).map(ToString::to_string).collect();
        offered.dedup();
        offered.truncate(20);
        ImageError::NoPlatform { wanted: self.to_string(), offered: offered.join(", ") }
    }

    /// Fails for the configuration of an image for another platform. A missing platform is accepted.
    ///
    /// # Errors
    /// [`ImageError::NoPlatform`].
    pub fn check(&self, image: &Self) -> Result<()> {
        let fits = |own: &str, its: &str| its.is_empty() || own == its;
        if fits(&self.os, &image.os) && fits(&self.architecture, &image.architecture) {
            return Ok(());
        }
        Err(ImageError::NoPlatform { wanted: self.to_string(), offered: image.to_string() })
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // This text is untrusted.
        let shown = |text: &str| text.chars().take(60).flat_map(char::escape_debug).collect::<String>();
        write!(f, "{}/{}", shown(&self.os), shown(&self.architecture))?;
        if self.variant.is_empty() { Ok(()) } else { write!(f, "/{}", shown(&self.variant)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sha256Digest;

    fn platform(text: &str) -> Platform {
        let mut parts = text.split('/').map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        Platform { os: next(), architecture: next(), variant: next() }
    }

    fn index(platforms: &[&str]) -> Vec<Descriptor> {
        let descriptor = |it: &&str| {
            let mut own = Descriptor::new(
                "application/vnd.oci.image.manifest.v1+json",
                Sha256Digest::from_content(it.as_bytes()),
                1,
            );
            own.platform = (!it.is_empty()).then(|| platform(it));
            own
        };
        platforms.iter().map(descriptor).collect()
    }

    #[test]
    fn the_manifest_for_this_host_is_selected() {
        let chosen = |own: &str, offered: &[&str]| {
            let index = index(offered);
            let found = platform(own).choose(&index).ok()?;
            offered.iter().position(|it| found.digest == Sha256Digest::from_content(it.as_bytes()))
        };
        assert_eq!(chosen("linux/amd64", &["linux/arm64/v8", "linux/amd64", "unknown/unknown"]), Some(1));
        assert_eq!(chosen("linux/amd64", &["windows/amd64", "linux/amd64/v3", "linux/amd64/v1"]), Some(2));
        assert_eq!(chosen("linux/amd64", &["linux/amd64/v3"]), None);
        assert_eq!(chosen("linux/arm64/v8", &["linux/arm64", "linux/arm64/v8"]), Some(1));
        assert_eq!(chosen("linux/arm/v7", &["linux/arm/v5", "linux/arm/v6", "linux/arm64"]), Some(1));
        assert_eq!(chosen("linux/amd64", &[""]), Some(0));
        assert_eq!(chosen("linux/amd64", &["", "linux/arm64"]), None);
        assert_eq!(chosen("linux/amd64", &[]), None);
    }

    #[test]
    fn an_image_without_a_platform_is_accepted() {
        let own = platform("linux/amd64");
        assert!(own.check(&platform("")).is_ok() && own.check(&platform("linux/amd64/v1")).is_ok());
        assert!(own.check(&platform("linux/arm64")).is_err() && own.check(&platform("windows/amd64")).is_err());
    }
}
