//! Sandboxes that are made as their repository's `devcontainer.json` says (sandbox.md 6.2).
//!
//! The file is read from the mirror before there is a container, and judged whole; then its image is made, and what was
//! decided is written down beside the sandbox's record. Whoever opens the sandbox later finds it there: a sandbox keeps the
//! file that it was made with.

mod choose;
mod enter;
mod features;
mod fetch;
mod image;
mod record;

pub(crate) use self::choose::{Beginning, afresh, chosen};
pub(crate) use self::enter::Told;
pub(super) use self::enter::enter;
pub(super) use self::image::image_of;
pub(super) use self::record::{Worn, forget, worn};
