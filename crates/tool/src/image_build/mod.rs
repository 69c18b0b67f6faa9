//! Images of containers, whoever they are for: found in the cache, or a base with a recipe built on it (containers.md 7, 8).
//!
//! `create` asks for the image of a profile, sessions and sandboxes for one by its name, `strict` for one that is derived from
//! either. All of them are built by one `Kitchen`, in one kind of container.

mod build_container;
mod builder;
mod owned_image;
mod session_image;

pub(crate) use self::build_container::{Spoiled, cook_here, cook_into, draft};
pub(crate) use self::builder::{Dish, ImageSource, Imaged, Kitchen, Packages, cache, ensure};
pub(crate) use self::owned_image::owned;
pub(crate) use self::session_image::{
    NamedImage, TrustedImage, imaged, not_for_snippets, of_sandbox as sandbox_image, trust,
};
