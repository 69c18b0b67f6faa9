//! Selects variables of the host.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Which variables of the host are passed: a word, or names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passthrough {
    /// Those that match the user's patterns.
    Auto,
    /// Every one.
    All,
    /// None.
    None,
    /// These.
    Names(Vec<String>),
}

impl Serialize for Passthrough {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => to.serialize_str("auto"),
            Self::All => to.serialize_str("all"),
            Self::None => to.serialize_str("none"),
            Self::Names(names) => names.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Passthrough {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct WordOrNames;
        impl<'de> Visitor<'de> for WordOrNames {
            type Value = Passthrough;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`auto`, `all`, `none` or a list of names")
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<Passthrough, E> {
                match word {
                    "auto" => Ok(Passthrough::Auto),
                    "all" => Ok(Passthrough::All),
                    "none" => Ok(Passthrough::None),
                    other => Err(E::invalid_value(serde::de::Unexpected::Str(other), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Passthrough, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = names.next_element()? {
                    all.push(name);
                }
                Ok(Passthrough::Names(all))
            }
        }
        from.deserialize_any(WordOrNames)
    }
}
