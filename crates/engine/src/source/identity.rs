//! Checks an image against the name that was requested. Pure.

use coracle_archive::oci::ResolvedImage;
use coracle_types::ImageRef;

use super::{BlobDigest, Result, SourceError};

/// The least number of digits of an id. A text with fewer digits is a name.
const LEAST_DIGITS: usize = 12;

/// What a requested name identifies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ImageIdentity {
    /// Any image with the name.
    Name,
    /// The image with this digest of its manifest or index.
    Digest(BlobDigest),
    /// The image with this id: the digest of the configuration, or of the manifest, depending on Docker's image store.
    Id(BlobDigest),
    /// The image whose id begins with these digits, else the image with this name.
    IdOrName(String),
}

/// Whether a copied image gets the requested name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameUse {
    /// It does.
    AsGiven,
    /// It does not: the name is an id, and must not become the name of an image.
    None,
}

impl ImageIdentity {
    /// # Errors
    /// [`SourceError::Image`] for a digest of another kind than SHA-256.
    pub(crate) fn from_name(name: &ImageRef) -> Result<Self> {
        let text = name.as_str();
        if let Some((_, digest)) = text.split_once('@') {
            let unknown = || SourceError::malformed("name", &"its digest is no SHA-256 digest");
            return BlobDigest::parse(digest).map(Self::Digest).ok_or_else(unknown);
        }
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        if let Some(id) = BlobDigest::parse(&format!("sha256:{digits}")) {
            return Ok(Self::Id(id));
        }
        let is_short = digits.len() >= LEAST_DIGITS && digits.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        Ok(if is_short { Self::IdOrName(digits.to_owned()) } else { Self::Name })
    }

    /// Compares it with the image that a source found.
    ///
    /// # Errors
    /// [`SourceError::Image`], and [`SourceError::UnknownDigest`] if the source does not know the digest.
    pub(crate) fn check(&self, image: &ResolvedImage) -> Result<NameUse> {
        let id = BlobDigest::from_content(&image.configuration);
        match self {
            Self::Name => Ok(NameUse::AsGiven),
            Self::Digest(expected) => {
                let unknown = || SourceError::UnknownDigest { expected: expected.clone() };
                expected.check("manifest", image.digest.as_ref().ok_or_else(unknown)?)?;
                Ok(NameUse::AsGiven)
            }
            Self::Id(expected) if image.digest.as_ref() == Some(expected) => Ok(NameUse::None),
            Self::Id(expected) => {
                expected.check("configuration", &id)?;
                Ok(NameUse::None)
            }
            Self::IdOrName(digits) => {
                let is_id =
                    [Some(&id), image.digest.as_ref()].into_iter().flatten().any(|it| it.hex().starts_with(digits));
                Ok(if is_id { NameUse::None } else { NameUse::AsGiven })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use coracle_archive::oci::ImageError;

    use super::*;

    fn check(name: &str, digest: Option<&BlobDigest>) -> Result<NameUse> {
        let image = ResolvedImage { configuration: b"{}".to_vec(), layers: vec![], digest: digest.cloned() };
        ImageIdentity::from_name(&ImageRef::parse(name).unwrap())?.check(&image)
    }

    #[test]
    fn an_image_with_another_digest_than_the_name_is_refused() {
        let (found, other) = (BlobDigest::from_content(b"manifest"), BlobDigest::from_content(b"other"));
        for name in ["x", "localhost:5000/x:1", "deadbeef"] {
            assert_eq!(check(name, None).unwrap(), NameUse::AsGiven, "{name}");
        }
        for name in [format!("x@{found}"), format!("quay.io/x:1@{found}")] {
            assert_eq!(check(&name, Some(&found)).unwrap(), NameUse::AsGiven);
            assert!(matches!(check(&name, Some(&other)), Err(SourceError::Image(ImageError::WrongDigest { .. }))));
            assert!(matches!(check(&name, None), Err(SourceError::UnknownDigest { .. })));
        }
    }

    #[test]
    fn an_image_with_another_id_is_refused_and_an_id_becomes_no_name() {
        let (id, other) = (BlobDigest::from_content(b"{}"), BlobDigest::from_content(b"other"));
        for name in [id.as_str(), id.hex(), &id.hex()[..12]] {
            assert_eq!(check(name, None).unwrap(), NameUse::None, "{name}");
        }
        // With its containerd image store, Docker uses the manifest's digest as the id.
        assert_eq!(check(other.as_str(), Some(&other)).unwrap(), NameUse::None);
        for name in [other.as_str(), other.hex()] {
            assert!(matches!(check(name, None), Err(SourceError::Image(ImageError::WrongDigest { .. }))), "{name}");
        }
        assert_eq!(check(&other.hex()[..12], None).unwrap(), NameUse::AsGiven);
    }
}
