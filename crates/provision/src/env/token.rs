//! The variables that contain GitHub's token.

use coracle_types::Secret;

/// The variables that hold it.
pub const NAMES: &[&str] = &["GH_TOKEN", "GITHUB_TOKEN"];

/// Returns the variables for the session.
pub(crate) fn variables(token: &Secret) -> impl Iterator<Item = (String, Secret)> {
    NAMES.iter().map(|name| ((*name).to_owned(), token.clone()))
}
