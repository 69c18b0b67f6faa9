//! Sandboxes that are created from their repository's `devcontainer.json`.
//!
//! The file is read from the mirror and validated completely before the container exists. Then its image is built, and
//! the decisions are stored beside the sandbox's record, where a later `open` reads them: a sandbox always uses the
//! file that it was created with.

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
pub use self::choose::{WorkflowOrigin, chosen, discard_stale};
pub(super) use self::image::image_of;
pub use self::judge::{JudgedFile, judge, searched, unmet};
pub use super::plan::bind;

/// Loads the file that the sandbox was created with, unless the configuration turns these files off.
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

/// Returns the setting that selects the file for sandboxes of a profile.
fn setting<'a>(cx: &'a Context, profile: &'a SandboxProfile) -> &'a DevcontainerFile {
    profile.devcontainer.as_ref().unwrap_or(&cx.config.sandbox.devcontainer)
}

/// Returns the host variables that a file may use.
pub fn local_env(cx: &Context) -> BTreeMap<String, String> {
    let value = |name: &String| String::from_utf8(cx.host.env.get(name)?.reveal().to_vec()).ok();
    cx.config.sandbox.local_env.iter().filter_map(|name| Some((name.clone(), value(name)?))).collect()
}
