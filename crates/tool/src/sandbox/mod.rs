//! Sandboxes put together: their containers by `lifecycle`, their images by `images`, what runs in them by `sandbox`.

pub(crate) mod devcontainer;
pub(crate) mod drive;
mod grants;
mod handles;
mod identity;
mod key;
mod known;
mod plan;
pub(crate) mod source;
mod teardown;

use std::path::PathBuf;

pub use self::drive::{Task, model, opened, work};
pub use self::handles::Sandboxes;
pub(crate) use self::handles::{apply_devcontainer, open, open_to_remove, worktrees};
pub(crate) use self::known::{SandboxRow, known, overview};
pub(crate) use self::teardown::{complete, expire, teardown, teardown_all};
use coracle_sandbox::ProfileName;

use crate::context::Context;
use crate::failure::Failure;

/// Where each sandbox has a directory of its own.
pub(crate) fn sandboxes(cx: &Context) -> Result<PathBuf, Failure> {
    Ok(cx.state()?.root().join("sandboxes"))
}

/// The profile of calls that name none.
pub(crate) fn usual_profile() -> ProfileName {
    ProfileName::parse("default").expect("the word follows the grammar")
}
