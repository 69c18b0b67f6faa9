//! The variables that hold GitHub's token.

use coracle_types::Secret;

/// The variables that hold it.
pub const NAMES: &[&str] = &["GH_TOKEN", "GITHUB_TOKEN"];

/// What the session gets.
pub(crate) fn variables(token: &Secret) -> impl Iterator<Item = (String, Secret)> {
    NAMES.iter().map(|name| ((*name).to_owned(), token.clone()))
}
