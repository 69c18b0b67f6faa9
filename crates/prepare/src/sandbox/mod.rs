//! Assembles sandboxes: containers by `lifecycle`, images by `images`, and what runs in them by `sandbox`.

pub mod devcontainer;
mod grants;
mod handles;
mod identity;
mod inventory;
mod plan;
pub mod run;
pub mod source;
mod teardown;

use std::path::PathBuf;

use coracle_context::context::Context;
use coracle_context::failure::Failure;

pub use self::handles::Sandboxes;
pub use self::handles::{apply_devcontainer, open, open_to_remove, worktrees};
pub use self::inventory::{SandboxRow, known, overview};
pub use self::run::{Task, ensure_key, model, opened, work};
pub use self::teardown::{complete, expire, teardown, teardown_all};
use coracle_types::ProfileName;

/// Returns the directory that contains one subdirectory per sandbox.
pub fn sandboxes(cx: &Context) -> Result<PathBuf, Failure> {
    Ok(cx.state()?.root().join("sandboxes"))
}

/// The profile of calls that name none.
pub fn usual_profile() -> ProfileName {
    ProfileName::parse("default").expect("the word follows the grammar")
}
