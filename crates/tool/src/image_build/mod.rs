//! Images of containers, whoever they are for: found in the cache, or a base with a recipe built on it (containers.md 7, 8).
//!
//! `create` asks for the image of a profile, sessions and sandboxes for one by its name, `strict` for one that is derived from
//! either. All of them are built by one `ImageBuilder`, in one kind of container.

mod build_container;
mod builder;
mod owned_image;
mod session_image;

pub(crate) use self::build_container::{BuildError, BuildInPlace, VolumeBuild, build_into_volumes, draft};
pub(crate) use self::builder::{ImageBuilder, ImageRequest, ImageSource, Packages, ResolvedImage, cache, ensure};
pub(crate) use self::owned_image::owned;
pub(crate) use self::session_image::{
    NamedImage, TrustedImage, not_for_snippets, of_sandbox as sandbox_image, resolve_image, trust,
};
