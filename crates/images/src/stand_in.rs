//! Replaces an image of a registry: installs its toolchain in a Debian from other sources, and reports the
//! differences.
//!
//! `ImageExpectation` parses the name of an image, `bootstrap` is the recipe for its toolchain, `probe` reads the
//! versions of the built image, and [`Contents::gaps`] compares the two.

mod contents;
mod expected;
mod probe;
mod recipe;

use coracle_types::ImageRef;

pub use self::contents::Contents;
use self::expected::ImageExpectation;
pub(crate) use self::probe::probe;
pub(crate) use self::recipe::{open_python, uv};
use crate::recipe::Recipe;

/// Returns the recipe that makes a Debian replace an image, if the image's name implies a toolchain.
pub(crate) fn bootstrap(image: &ImageRef) -> Option<Recipe> {
    let ImageExpectation { toolchain, version, .. } = ImageExpectation::from_reference(image);
    toolchain.map(|it| recipe::recipe(it, &version))
}
