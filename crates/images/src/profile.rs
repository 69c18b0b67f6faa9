//! What a purpose stands for: an image, what is put on it, and what of the person's it gets.

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

/// The profile of a purpose, with what the person configured. `version` is that of `amplifier`, and has no meaning for others.
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
            // Of an image whose name says nothing, what the built-in one would bring is the best guess.
            profile.bootstrap = stand_in::bootstrap(&image).unwrap_or(profile.bootstrap);
            profile.image = image;
        }
        // What starts the server is a part of the setup.
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
