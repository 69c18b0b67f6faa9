//! Sandboxes put together: their containers by `lifecycle`, their images by `images`, what runs in them by `sandbox`.

mod containers;
mod devcontainer;
mod drive;
mod grants;
mod home;
mod identity;
mod key;
mod known;
mod own_network;
mod plan;
mod runs;
mod source;
mod teardown;
pub(crate) mod workflow;
pub(crate) mod worktree;

use std::path::PathBuf;

pub(crate) use self::drive::{Task, model, opened, work};
pub(crate) use self::home::{Home, Homes, Open, worktrees};
pub(crate) use self::known::{known, overview};
pub(crate) use self::teardown::{complete, expire, teardown, teardown_all};
use crate::context::Context;
use crate::failure::Failure;

/// Where each sandbox has a directory of its own.
fn sandboxes(cx: &Context) -> Result<PathBuf, Failure> {
    Ok(cx.state()?.root().join("sandboxes"))
}
