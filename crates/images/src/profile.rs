//! What a purpose stands for: an image, what is put on it, and what of the person's it gets (containers.md 7).

pub mod rooms;
mod table;

use std::collections::BTreeMap;
use std::fmt;

use coracle_runtime::{ImageRef, InvalidName};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::packages::PackageName;
use crate::recipe::{Recipe, Setup};
use crate::stand_in;

/// The name of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Purpose(String);

impl Purpose {
    /// Checks a text.
    ///
    /// # Errors
    /// [`InvalidName`], which says the grammar.
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

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// It stands for whatever the repository turns out to need.
    #[must_use]
    pub fn is_detected(&self) -> bool {
        self.0 == table::DETECTED
    }
}

impl TryFrom<String> for Purpose {
    type Error = InvalidName;
    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::parse(text)
    }
}

impl From<Purpose> for String {
    fn from(it: Purpose) -> Self {
        it.0
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which variables of the host go in (containers.md 6.2): a word, or names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passthrough {
    /// Those that match the person's patterns.
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

/// A profile, whole. What is `None` is as the person configured it for all containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// What its containers are made from, unless another image is named.
    pub image: ImageRef,
    /// What is put on it.
    pub recipe: Recipe,
    /// What is put on a base that was made without a registry, before the rest.
    pub bootstrap: Recipe,
    /// Variables of the host.
    pub env_passthrough: Option<Passthrough>,
    /// The person's git identity.
    pub forward_git: Option<bool>,
    /// The person's GitHub token.
    pub forward_gh: Option<bool>,
    /// The person's ssh keys.
    pub forward_ssh: Option<bool>,
    /// The person's dotfiles.
    pub dotfiles: Option<bool>,
}

/// What `[profiles.<name>]` of the configuration says: each field that is there takes the place of the built-in one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileSettings {
    /// In place of the image.
    pub image: Option<ImageRef>,
    /// In place of the packages.
    pub packages: Option<Vec<PackageName>>,
    /// In place of the commands, each for `/bin/sh -c` as root.
    pub setup: Option<Vec<Setup>>,
    /// In place of the variables.
    pub env: Option<BTreeMap<String, String>>,
    /// As in [`Profile`].
    pub env_passthrough: Option<Passthrough>,
    /// As in [`Profile`].
    pub forward_git: Option<bool>,
    /// As in [`Profile`].
    pub forward_gh: Option<bool>,
    /// As in [`Profile`].
    pub forward_ssh: Option<bool>,
    /// As in [`Profile`].
    pub dotfiles: Option<bool>,
}

/// Why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Neither built in nor configured.
    #[error("no profile `{purpose}`; there are {}", known.iter().map(Purpose::as_str).collect::<Vec<_>>().join(", "))]
    Unknown {
        /// What was asked for.
        purpose: Purpose,
        /// What there is.
        known: Vec<Purpose>,
    },
    /// A configured one that is not built in has to name an image.
    #[error("profile `{0}` names no image")]
    NoImage(Purpose),
    /// `amplifier_version` is no version.
    #[error("`{}` is no version: letters, digits, `.`, `+`, `!` and `-`, at most 64", .0.escape_debug())]
    Version(String),
    /// `try-repo` stands for another profile, which has to be detected first.
    #[error("`{0}` has to be detected first")]
    Detected(Purpose),
}

/// The profile of a purpose, with what the person configured. `version` is that of `amplifier`, and has no meaning for others.
///
/// # Errors
/// [`ProfileError`].
pub fn of(
    purpose: &Purpose,
    settings: &BTreeMap<Purpose, ProfileSettings>,
    version: Option<&str>,
) -> Result<Profile, ProfileError> {
    if purpose.is_detected() {
        return Err(ProfileError::Detected(purpose.clone()));
    }
    let own = settings.get(purpose);
    let mut profile = match (table::builtin(purpose, version)?, own) {
        (Some(profile), _) => profile,
        (None, None) => return Err(ProfileError::Unknown { purpose: purpose.clone(), known: known(settings) }),
        (None, Some(own)) => table::blank(own.image.clone().ok_or_else(|| ProfileError::NoImage(purpose.clone()))?),
    };
    if let Some(own) = own.cloned() {
        if let Some(image) = own.image {
            // Of an image whose name says nothing, what the built-in one would bring is the best guess.
            profile.bootstrap = stand_in::bootstrap(&image).unwrap_or(profile.bootstrap);
            profile.image = image;
        }
        profile.recipe = Recipe {
            packages: own.packages.map_or(profile.recipe.packages, |it| it.into_iter().collect()),
            setup: own.setup.unwrap_or(profile.recipe.setup),
            env: own.env.unwrap_or(profile.recipe.env),
            ..profile.recipe
        };
        profile.env_passthrough = own.env_passthrough.or(profile.env_passthrough);
        profile.forward_git = own.forward_git.or(profile.forward_git);
        profile.forward_gh = own.forward_gh.or(profile.forward_gh);
        profile.forward_ssh = own.forward_ssh.or(profile.forward_ssh);
        profile.dotfiles = own.dotfiles.or(profile.dotfiles);
    }
    Ok(profile)
}

/// Nothing on an image, and everything as it is configured for all.
#[must_use]
pub fn bare(image: ImageRef) -> Profile {
    table::blank(image)
}

/// Whether it is nothing that is built in.
#[must_use]
pub fn is_new(purpose: &Purpose) -> bool {
    !table::names().any(|it| it == *purpose)
}

/// Every purpose there is, built in or configured, in order.
#[must_use]
pub fn known(settings: &BTreeMap<Purpose, ProfileSettings>) -> Vec<Purpose> {
    let mut all: Vec<_> = table::names().chain(settings.keys().cloned()).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests;
