//! SHA-256 digests, by which images name their parts.

use std::fmt;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest: `sha256:` and 64 hex digits. Images with digests of other kinds are refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Digest(String);

impl Sha256Digest {
    /// `None` if it is not a SHA-256 digest.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("sha256:")?;
        let is_hex = digits.len() == 64 && digits.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'));
        is_hex.then(|| Self(text.to_owned()))
    }

    /// The digest of these bytes.
    #[must_use]
    pub fn from_content(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    /// The digest of the hashed data.
    #[must_use]
    pub fn finish(hash: Sha256) -> Self {
        Self::from_bytes(hash.finalize().into())
    }

    /// The digest with these bytes.
    #[must_use]
    pub fn from_bytes(digest: [u8; 32]) -> Self {
        Self(format!("sha256:{}", hex::encode(digest)))
    }

    /// The hex digits.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0["sha256:".len()..]
    }

    /// Its text, with `sha256:`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Sha256Digest> for String {
    fn from(it: Sha256Digest) -> Self {
        it.0
    }
}

impl TryFrom<String> for Sha256Digest {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("`{}` is no SHA-256 digest", text.escape_debug()))
    }
}

/// A stream whose bytes are hashed and counted, in either direction.
#[derive(Debug, Default)]
pub struct HashingStream<S> {
    stream: S,
    hash: Sha256,
    size: u64,
}

impl<S> HashingStream<S> {
    /// Nothing has passed yet.
    pub fn new(stream: S) -> Self {
        Self { stream, hash: Sha256::new(), size: 0 }
    }

    /// Bytes so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the stream, the digest, and the number of bytes.
    pub fn finish(self) -> (S, Sha256Digest, u64) {
        (self.stream, Sha256Digest::finish(self.hash), self.size)
    }

    fn count(&mut self, bytes: &[u8]) -> usize {
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
        bytes.len()
    }
}

impl<S: Write> Write for HashingStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(bytes)?;
        Ok(self.count(&bytes[..count]))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S: Read> Read for HashingStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        Ok(self.count(&buffer[..count]))
    }
}

#[cfg(test)]
mod tests {
    use super::Sha256Digest;

    #[test]
    fn only_lower_case_sha256_is_a_digest() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Sha256Digest::from_content(b"").as_str(), empty);
        assert_eq!(Sha256Digest::parse(empty), Some(Sha256Digest::from_content(b"")));
        for bad in ["", "sha256:", &empty.to_uppercase(), &empty[7..], &format!("{empty}0"), "sha256:../../x"] {
            assert_eq!(Sha256Digest::parse(bad), None, "{bad}");
        }
        assert_eq!(Sha256Digest::parse(&format!("sha512:{}", "0".repeat(128))), None);
    }
}
