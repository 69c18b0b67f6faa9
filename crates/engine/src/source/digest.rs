//! Digests by which images name their parts.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest: `sha256:` and 64 hex digits. Images with digests of other kinds are refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct BlobDigest(String);

impl BlobDigest {
    /// `None` for what is no SHA-256 digest.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        let is_hex = digits.len() == 64 && digits.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        is_hex.then(|| Self(text.to_owned()))
    }

    /// The digest of these bytes.
    pub(crate) fn from_content(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    pub(crate) fn finish(hash: Sha256) -> Self {
        Self(format!("sha256:{}", hex::encode(hash.finalize())))
    }

    /// The digits alone.
    pub(crate) fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<BlobDigest> for String {
    fn from(it: BlobDigest) -> Self {
        it.0
    }
}

impl TryFrom<String> for BlobDigest {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{}` is no SHA-256 digest", text.escape_debug()))
    }
}

#[cfg(test)]
mod tests {
    use super::BlobDigest;

    #[test]
    fn only_lower_case_sha256_is_a_digest() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(BlobDigest::from_content(b"").as_str(), empty);
        assert_eq!(BlobDigest::parse(empty), Some(BlobDigest::from_content(b"")));
        for bad in ["", "sha256:", &empty.to_uppercase(), &empty[7..], &format!("{empty}0"), "sha256:../../x"] {
            assert_eq!(BlobDigest::parse(bad), None, "{bad}");
        }
        assert_eq!(BlobDigest::parse(&format!("sha512:{}", "0".repeat(128))), None);
    }
}
