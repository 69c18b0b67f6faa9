//! A profile, and its configuration.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use coracle_types::ImageRef;
use serde::{Deserialize, Deserializer, Serialize};

use super::passthrough::Passthrough;
use crate::packages::PackageName;
use crate::recipe::{Recipe, Setup};

/// A complete profile. `None` means the user's setting for all containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The image of its containers, unless the caller chooses another.
    pub image: ImageRef,
    /// What is installed in it.
    pub recipe: Recipe,
    /// What is installed first in a base that was built without a registry.
    pub bootstrap: Recipe,
    /// Variables of the host.
    pub env_passthrough: Option<Passthrough>,
    /// Whether to forward the user's git identity.
    pub forward_git: Option<bool>,
    /// Whether to forward the user's GitHub token.
    pub forward_gh: Option<bool>,
    /// Whether to forward the user's SSH keys.
    pub forward_ssh: Option<bool>,
    /// Whether to set up the user's dotfiles.
    pub dotfiles: Option<bool>,
    /// The server in its containers.
    pub server: Option<ProfileServer>,
    /// Whether programs of `.venv` in the work directory come first.
    pub project_venv: bool,
}

/// A server that the containers of a profile run as their main program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileServer {
    /// The command that starts it, as the exec user.
    #[serde(deserialize_with = "words")]
    pub command: Vec<String>,
    /// The port that it listens on, on all addresses inside.
    pub port: NonZeroU16,
    /// The path of its page.
    #[serde(default = "root")]
    pub path: String,
    /// The file below the home that contains the page's password.
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

/// The configuration of `[profiles.<name>]`: each field replaces the built-in one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileSettings {
    /// Replaces the image.
    pub image: Option<ImageRef>,
    /// Replaces the packages.
    pub packages: Option<Vec<PackageName>>,
    /// Replaces the commands, each for `/bin/sh -c` as root.
    pub setup: Option<Vec<Setup>>,
    /// Replaces the variables.
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
    /// Replaces the server.
    pub server: Option<ProfileServer>,
}
