//! Images of containers: connects `images` to the configuration and to build containers.

mod accounts;
mod build_containers;
mod builder;
mod elsewhere;
mod owned_image;
mod resolved_image;
mod session_image;

pub use self::accounts::accounts;
pub use self::build_containers::{BuildInPlace, build_into_volumes, draft};
pub use self::builder::{cache, fetch_settings};
pub use self::owned_image::owned;
pub use self::resolved_image::{ImageSource, Packages, ResolvedImage, ensure};
pub use self::session_image::{
    NamedImage, TrustedImage, not_for_snippets, of_sandbox as sandbox_image, resolve_image, trust,
};
