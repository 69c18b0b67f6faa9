//! Sizes in bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number of bytes. Parses an integer, or text with `k`, `m` or `g`, also written `kb` or `KiB` (powers of 1024,
/// either case).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "serde_json::Value", into = "u64")]
pub struct ByteSize(pub u64);

/// A text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size: bytes as an integer, or text such as `512m` or `4g`")]
pub struct InvalidSize(String);

impl ByteSize {
    /// Reads text.
    ///
    /// # Errors
    /// [`InvalidSize`] for text that is not a number, has another unit, or does not fit 64 bits.
    pub fn parse(text: &str) -> Result<Self, InvalidSize> {
        let invalid = || InvalidSize(text.chars().take(40).collect());
        let at = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(at);
        let shift = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            _ => return Err(invalid()),
        };
        if digits.is_empty() {
            return Err(invalid());
        }
        let number: u64 = digits.parse().map_err(|_| invalid())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(invalid)
    }

    /// A size in mebibytes.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }
}

impl TryFrom<serde_json::Value> for ByteSize {
    type Error = InvalidSize;
    fn try_from(value: serde_json::Value) -> Result<Self, InvalidSize> {
        match &value {
            serde_json::Value::String(text) => Self::parse(text),
            other => other.as_u64().map(Self).ok_or_else(|| InvalidSize(other.to_string())),
        }
    }
}

impl From<ByteSize> for u64 {
    fn from(it: ByteSize) -> Self {
        it.0
    }
}

impl fmt::Display for ByteSize {
    /// Uses the largest unit without a remainder.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in [("g", 30), ("m", 20), ("k", 10)] {
            if self.0 > 0 && self.0.trailing_zeros() >= shift {
                return write!(f, "{}{unit}", self.0 >> shift);
            }
        }
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::ByteSize;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [
            ("512m", 512 << 20),
            ("512mb", 512 << 20),
            ("512MiB", 512 << 20),
            ("4g", 4 << 30),
            ("4G", 4 << 30),
            ("4gb", 4 << 30),
            ("4GB", 4 << 30),
            ("7kb", 7 << 10),
            ("7b", 7),
            ("7", 7),
        ] {
            assert_eq!(ByteSize::parse(text), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in ["", "m", "gb", "-1", "1.5g", "4gg", "4xb", "99999999999g", "1 m", "+1"] {
            assert!(ByteSize::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(bytes: u64) {
            prop_assert_eq!(ByteSize::parse(&ByteSize(bytes).to_string()), Ok(ByteSize(bytes)));
        }
    }
}
