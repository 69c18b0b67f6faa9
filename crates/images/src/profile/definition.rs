//! A profile, and what the person configured of it.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use coracle_types::ImageRef;
use serde::{Deserialize, Deserializer, Serialize};

use super::passthrough::Passthrough;
use crate::packages::PackageName;
use crate::recipe::{Recipe, Setup};

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
    /// What its containers serve.
    pub server: Option<ProfileServer>,
}

/// A server that the containers of a profile run as their main program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileServer {
    /// What starts it, as the exec user.
    #[serde(deserialize_with = "words")]
    pub command: Vec<String>,
    /// The port that it listens on, on all addresses inside.
    pub port: NonZeroU16,
    /// The path of its page.
    #[serde(default = "root")]
    pub path: String,
    /// The file below the home in which it keeps the page's password.
    #[serde(default)]
    pub password: Option<String>,
}

fn root() -> String {
    "/".to_owned()
}

fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    if words.first().is_none_or(String::is_empty) {
        return Err(serde::de::Error::invalid_length(0, &"the words of a program"));
    }
    Ok(words)
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
    /// In place of the server.
    pub server: Option<ProfileServer>,
}
