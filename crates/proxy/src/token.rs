//! The tokens that authenticate a container to its proxy.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use coracle_types::Secret;
use ctutils::CtEq as _;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// What a token is valid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// The routes to models.
    Llm,
    /// Git and names outside.
    Net,
}

/// The SHA-256 of a token. The host stores only this.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenHash(String);

impl TokenHash {
    /// Hashes a received token.
    #[must_use]
    pub fn from_token(token: &[u8]) -> Self {
        Self(hex::encode(Sha256::digest(token)))
    }

    /// Whether the hash matches a token, in constant time.
    #[must_use]
    pub fn is_of(&self, token: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(Self::from_token(token).0.as_bytes()).into()
    }
}

/// Generates a token: 32 random bytes, in base64url.
#[must_use]
pub fn fresh_token() -> Secret {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).expect("the system's random generator answers");
    Secret::from(URL_SAFE_NO_PAD.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_matches_only_its_token() {
        let (one, other) = (fresh_token(), fresh_token());
        assert_ne!(one, other);
        let hash = TokenHash::from_token(one.reveal());
        assert!(hash.is_of(one.reveal()));
        assert!(!hash.is_of(other.reveal()) && !hash.is_of(b""));
    }
}
