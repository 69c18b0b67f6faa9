//! Access to the files of a running container with a kernel of its own, through the mounts from which that kernel reads them.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

use coracle_types::Result;
use rustix::mount::MountAttrFlags;
use serde_json::Value;

use super::super::plan::{c_path, c_text};
use super::super::state::RunRecord;
use super::super::{host_error, unreadable};
use super::run_directory::RunDirectory;
use crate::container::StoredContainer;
use crate::engine::Engine;
use crate::sys::{BindSource, RootMount, Step, TreeOptions, clone_tree};

/// Returns the user namespace and the steps of a process whose root directory has the container's files. Directories in
/// memory exist only in the container's kernel: here they are empty and read-only.
pub(in super::super) fn running_root(
    engine: &Engine,
    container: &StoredContainer,
    run: &RunRecord,
) -> Result<(Option<OwnedFd>, Vec<Step>)> {
    let place = RunDirectory::new(engine, &container.config.id);
    let failed = || host_error("cannot open the container's files");
    let users = match run.shares_users {
        None => {
            let map = engine.privileges.map_for(&container.config.id);
            Some(engine.privileges.create_namespace(&map).map_err(failed())?)
        }
        Some(_) => None,
    };
    let options = TreeOptions { attributes: MountAttrFlags::empty(), ids: None, recursive: false };
    let root = clone_tree(&c_path(&place.root())?, options).map_err(|err| failed()(err.into()))?;
    let at = c_path(&container.dir.root())?;
    let mut steps = vec![Step::PrivateMounts, Step::AttachRoot { root: RootMount::Prepared(root), at }];
    let bundle = std::fs::read(place.bundle_file()).map_err(failed())?;
    let bundle: Value = serde_json::from_slice(&bundle).map_err(|err| unreadable("inspect", &err))?;
    let mounts = bundle["mounts"].as_array().map(Vec::as_slice).unwrap_or_default();
    for mount in mounts {
        steps.push(step(mount, &place.sources())?);
    }
    steps.extend(users.is_some().then_some(Step::BecomeRoot));
    steps.push(Step::EnterRoot);
    Ok((users, steps))
}

fn step(mount: &Value, sources: &Path) -> Result<Step> {
    let text = |name: &str| mount[name].as_str().unwrap_or_default();
    let target: CString = c_text(text("destination"))?;
    let source = Path::new(text("source"));
    if !source.starts_with(sources) {
        return Ok(Step::Mask(target));
    }
    let read_only = mount["options"].as_array().is_some_and(|it| it.iter().any(|it| it == "ro"));
    let harmless = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let attributes = if read_only { harmless | MountAttrFlags::MOUNT_ATTR_RDONLY } else { harmless };
    let directory = source.is_dir();
    let source = BindSource::Path { path: c_path(source)?, recursive: true };
    Ok(Step::Bind { source, attributes, target, directory })
}
