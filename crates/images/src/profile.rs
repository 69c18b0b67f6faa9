//! Profiles: the image of a purpose, its recipe, and its settings for the user's data.

mod definition;
mod error;
mod passthrough;
mod purpose;
mod servers;
pub mod session_images;
mod table;

use std::collections::BTreeMap;

use coracle_types::ImageRef;

pub use self::definition::{Profile, ProfileServer, ProfileSettings};
pub use self::error::ProfileError;
pub use self::passthrough::Passthrough;
pub use self::purpose::Purpose;
use crate::recipe::Recipe;
use crate::stand_in;

/// Resolves the profile of a purpose, with the user's configuration. `version` is that of `amplifier`; others ignore
/// it.
///
/// # Errors
/// [`ProfileError`].
pub fn resolve(
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
            // For an image with an unknown name, the built-in profile's toolchain is the best guess.
            profile.bootstrap = stand_in::bootstrap(&image).unwrap_or(profile.bootstrap);
            profile.image = image;
        }
        // The setup installs the start script of the server.
        profile.server = own.server.or(profile.server.filter(|_| own.setup.is_none()));
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

/// A profile of an image, without a recipe or settings of its own.
#[must_use]
pub fn bare(image: ImageRef) -> Profile {
    table::blank(image)
}

/// Whether it differs from the built-in profiles.
#[must_use]
pub fn is_new(purpose: &Purpose) -> bool {
    !table::names().any(|it| it == *purpose)
}

/// Lists all purposes, built in or configured, in order.
#[must_use]
pub fn known(settings: &BTreeMap<Purpose, ProfileSettings>) -> Vec<Purpose> {
    let mut all: Vec<_> = table::names().chain(settings.keys().cloned()).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests;
