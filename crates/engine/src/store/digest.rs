//! Digests of uncompressed layers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The digest of a layer's uncompressed archive: `sha256:` and 64 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct DiffId(String);

impl DiffId {
    /// `None` for what is no SHA-256 digest.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        let is_hex = digits.len() == 64 && digits.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it));
        is_hex.then(|| Self(text.to_owned()))
    }

    pub(crate) fn from_sha256(digest: [u8; 32]) -> Self {
        Self(format!("sha256:{}", hex::encode(digest)))
    }

    /// The digits alone.
    pub(crate) fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DiffId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<DiffId> for String {
    fn from(it: DiffId) -> Self {
        it.0
    }
}

impl TryFrom<String> for DiffId {
    type Error = String;
    fn try_from(text: String) -> std::result::Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{}` is no SHA-256 digest", text.escape_debug()))
    }
}
