//! SHA-256 of JSON values. Pure.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A SHA-256 in hex.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Hex(String);

impl Sha256Hex {
    /// The complete digest.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first sixteen digits, for names.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[..16]
    }
}

impl fmt::Display for Sha256Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Hashes a value as JSON.
pub(crate) fn sum_of(it: &impl Serialize) -> Sha256Hex {
    hashed(&canonical(it))
}

/// Keys in order, no blanks: a JSON object of a sorted map is canonical.
pub(crate) fn canonical(it: &impl Serialize) -> Value {
    serde_json::to_value(it).expect("text and lists of text can be written as JSON")
}

pub(crate) fn hashed(value: &Value) -> Sha256Hex {
    Sha256Hex(hex::encode(Sha256::digest(value.to_string())))
}
