//! What stands in for the image of a registry: the toolchain that the image would bring, got on a Debian from where it can
//! be had, and what differs in the end.
//!
//! `ImageExpectation` reads the name of an image, `bootstrap` is the recipe for its toolchain, `probe` asks the image that was
//! built which versions it has, and [`Contents::gaps`] compares the two.

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

/// What makes a Debian stand in for an image, if the name says which toolchain that brings.
pub(crate) fn bootstrap(image: &ImageRef) -> Option<Recipe> {
    let ImageExpectation { toolchain, version, .. } = ImageExpectation::from_reference(image);
    toolchain.map(|it| recipe::recipe(it, &version))
}
