//! Sandboxes put together: their containers by `lifecycle`, their images by `images`, what runs in them by `sandbox`.

mod containers;
mod drive;
mod grants;
mod home;
mod plan;
mod runs;
pub(crate) mod workflow;
pub(crate) mod worktree;

pub(crate) use self::drive::{Task, work};
pub(crate) use self::home::Homes;
