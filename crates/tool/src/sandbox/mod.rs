//! Sandboxes put together: their containers by `lifecycle`, their images by `images`, what runs in them by `sandbox`.

mod containers;
pub(crate) mod devcontainer;
pub(crate) mod drive;
mod grants;
pub(crate) mod home;
mod identity;
mod key;
mod known;
mod own_network;
mod plan;
pub(crate) mod runs;
pub(crate) mod source;
mod teardown;

use std::path::PathBuf;

pub use self::drive::{Task, model, opened, work};
pub(crate) use self::home::worktrees;
pub use self::home::{Home, Homes, Open};
pub use self::known::{known, overview};
pub(crate) use self::teardown::expire;
pub use self::teardown::{complete, teardown, teardown_all};
use coracle_sandbox::ProfileName;

use crate::context::Context;
use crate::failure::Failure;

/// Where each sandbox has a directory of its own.
pub(crate) fn sandboxes(cx: &Context) -> Result<PathBuf, Failure> {
    Ok(cx.state()?.root().join("sandboxes"))
}

/// The kind of sandbox that nobody has to name.
pub(crate) fn usual_profile() -> ProfileName {
    ProfileName::parse("default").expect("the word follows the grammar")
}

/// The sandboxes of a process, for what is done to several of them in one call.
#[derive(Clone, Copy, Debug)]
pub struct Sandboxes<'a> {
    /// The call.
    pub cx: &'a Context,
    /// Those that the process uses.
    pub homes: &'a Homes,
}
