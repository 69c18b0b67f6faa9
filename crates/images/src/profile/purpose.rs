//! The name of a profile.

use coracle_types::InvalidName;
use serde::{Deserialize, Serialize};

/// The purpose that is detected from a repository.
pub(super) const DETECTED: &str = "try-repo";

/// The name of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Purpose(String);

impl Purpose {
    /// Validates a text.
    ///
    /// # Errors
    /// [`InvalidName`], with the grammar.
    pub fn parse(text: impl AsRef<str>) -> Result<Self, InvalidName> {
        let text = text.as_ref();
        let plain = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
        if text.len() <= 32 && text.starts_with(|it: char| it.is_ascii_lowercase()) && text.chars().all(plain) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidName {
            kind: "a purpose",
            value: text.chars().take(200).collect(),
            grammar: "a lower-case letter, then lower-case letters, digits and `-`, at most 32",
        })
    }

    pub(crate) fn known(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// Whether it has to be detected from a repository.
    #[must_use]
    pub fn is_detected(&self) -> bool {
        self.0 == DETECTED
    }
}

checked_text!(Purpose);
