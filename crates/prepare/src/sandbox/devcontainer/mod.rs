//! Sandboxes that are made as their repository's `devcontainer.json` says.
//!
//! The file is read from the mirror before there is a container, and judged whole; then its image is made, and what was
//! decided is written down beside the sandbox's record. A later `open` finds it there: a sandbox keeps the
//! file that it was made with.

mod build_files;
mod choose;
mod features;
mod fetch;
mod image;
mod judge;
mod refusal;

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_context::config::{DevcontainerFile, SandboxProfile};
use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_sandbox::SandboxDir;
use coracle_sandbox::devcontainer_state::DevcontainerState;

pub use self::build_files::BuildFiles;
pub use self::choose::{WorkflowOrigin, afresh, chosen};
pub(super) use self::image::image_of;
pub use self::judge::{JudgedFile, judge, searched, unmet};
pub use super::plan::bind;

/// The file that a sandbox was made with, unless the person wants none.
pub(super) fn load(
    cx: &Context,
    dir: &SandboxDir,
    profile: &SandboxProfile,
) -> Result<Option<Arc<DevcontainerState>>, Failure> {
    if *setting(cx, profile) == DevcontainerFile::Off {
        return Ok(None);
    }
    Ok(DevcontainerState::load(dir, local_env(cx), profile.image.clone())?.map(Arc::new))
}

/// Which file counts for sandboxes of a profile.
fn setting<'a>(cx: &'a Context, profile: &'a SandboxProfile) -> &'a DevcontainerFile {
    profile.devcontainer.as_ref().unwrap_or(&cx.config.sandbox.devcontainer)
}

/// The variables of this host that a file may use.
pub fn local_env(cx: &Context) -> BTreeMap<String, String> {
    let value = |name: &String| String::from_utf8(cx.host.env.get(name)?.reveal().to_vec()).ok();
    cx.config.sandbox.local_env.iter().filter_map(|name| Some((name.clone(), value(name)?))).collect()
}
