//! Sandboxes put together: their containers by `lifecycle`, their images by `images`, what runs in them by `sandbox`.

pub(crate) mod devcontainer;
mod grants;
mod handles;
mod identity;
mod inventory;
mod key;
mod plan;
pub(crate) mod run;
pub(crate) mod source;
mod teardown;

use std::path::PathBuf;

use coracle_context::context::Context;
use coracle_context::failure::Failure;

pub use self::handles::Sandboxes;
pub(crate) use self::handles::{apply_devcontainer, open, open_to_remove, worktrees};
pub(crate) use self::inventory::{SandboxRow, known, overview};
pub use self::run::{Task, ensure_key, model, opened, work};
pub(crate) use self::teardown::{complete, expire, teardown, teardown_all};
use coracle_sandbox::ProfileName;

/// Where each sandbox has a directory of its own.
pub(crate) fn sandboxes(cx: &Context) -> Result<PathBuf, Failure> {
    Ok(cx.state()?.root().join("sandboxes"))
}

/// The profile of calls that name none.
pub(crate) fn usual_profile() -> ProfileName {
    ProfileName::parse("default").expect("the word follows the grammar")
}
