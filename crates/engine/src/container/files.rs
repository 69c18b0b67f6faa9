//! Copies files into and out of a container as archives, by a process within its namespaces, so that links are resolved
//! inside.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use coracle_types::{ContainerPath, Error, Result};
use serde::{Deserialize, Serialize};

use super::containers::{StoredContainer, layer_dirs};
use super::plan::{HostMounts, RootRequest, TreeError, c_path, root_mount};
use super::start::{open_upper, start_incomplete, volume_dirs};
use super::state::State;
use super::{by_runtime, end, host_error};
use crate::engine::Engine;
use crate::error::refused;
use crate::file_archive::{self, DownloadOutcome};
use crate::sys::{ChildPlace, Step, run_in_child};

/// Unpacks a tar below an existing directory. Blocks.
pub(crate) fn upload(engine: &Engine, container: &StoredContainer, at: &ContainerPath, tar: File) -> Result<()> {
    let path = Path::new(at.as_str());
    let unpacked = inside(engine, container, || file_archive::unpack(tar, path))?;
    unpacked.map_err(|err| refused("upload", format_args!("cannot unpack files at `{at}` of the container: {err}")))
}

/// The file that a download is written to.
#[derive(Debug)]
pub(crate) struct DownloadFile {
    pub(crate) file: File,
    pub(crate) max_bytes: u64,
}

/// Writes a tar of a path. Blocks.
pub(crate) fn download(
    engine: &Engine,
    container: &StoredContainer,
    path: &ContainerPath,
    into: DownloadFile,
) -> Result<()> {
    let DownloadFile { file, max_bytes } = into;
    let packed = inside(engine, container, || file_archive::pack(Path::new(path.as_str()), file, max_bytes))?;
    match packed.map_err(host_error(format!("cannot read `{path}` of the container")))? {
        DownloadOutcome::Complete => Ok(()),
        DownloadOutcome::TooLarge => Err(Error::TooLarge { max_bytes }),
        DownloadOutcome::Missing => Err(refused("download", format_args!("no `{path}` in the container"))),
    }
}

/// Runs `work` as root of the container, with its root directory.
fn inside<T: Serialize + for<'de> Deserialize<'de>>(
    engine: &Engine,
    container: &StoredContainer,
    work: impl FnOnce() -> io::Result<T>,
) -> Result<io::Result<T>> {
    let state = container.state()?;
    if let State::Running { run, .. } = &state
        && container.config.runtime.is_some_and(crate::oci_runtime::OciRuntime::has_own_kernel)
    {
        let (users, steps) = by_runtime::running_root(engine, container, run)?;
        let namespaces = users.iter().map(|it| (it.as_fd(), libc::CLONE_NEWUSER)).collect();
        return Ok(run_in_child(&ChildPlace { namespaces, new_mounts: true, steps }, work));
    }
    match state.process().and_then(end::open) {
        Some(pidfd) => {
            // The caller waited for a start in progress; another one has begun since.
            if !container.is_start_complete() {
                return Err(start_incomplete(container, "copy"));
            }
            let has_users = state.run().is_some_and(|it| it.shares_users.is_none());
            let users = if has_users { libc::CLONE_NEWUSER } else { 0 };
            let namespaces = vec![(pidfd.as_fd(), users | libc::CLONE_NEWNS)];
            let place = ChildPlace { namespaces, new_mounts: false, steps: vec![Step::BecomeRoot] };
            Ok(run_in_child(&place, work))
        }
        None => at_rest(engine, container, work),
    }
}

/// Runs `work` for a container that does not run, with mounts of its root file system, volumes and binds. Its directories in
/// memory do not exist then.
fn at_rest<T: Serialize + for<'de> Deserialize<'de>>(
    engine: &Engine,
    container: &StoredContainer,
    work: impl FnOnce() -> io::Result<T>,
) -> Result<io::Result<T>> {
    let users = engine.privileges.create_namespace(&engine.privileges.map_for(&container.config.id));
    let users = users.map_err(host_error("cannot create a user namespace"))?;
    match resting_root(engine, container, Some(&users)) {
        Err(TreeError::Unmappable(_)) => {
            let root = resting_root(engine, container, None);
            let steps =
                root.map_err(|err| Error::Host { what: err.to_string(), source: io::ErrorKind::Other.into() })?;
            Ok(run_in_child(&ChildPlace { namespaces: Vec::new(), new_mounts: true, steps }, work))
        }
        Err(TreeError::Failed(err)) => Err(err),
        Ok(steps) => {
            let namespaces = vec![(users.as_fd(), libc::CLONE_NEWUSER)];
            Ok(run_in_child(&ChildPlace { namespaces, new_mounts: true, steps }, work))
        }
    }
}

fn resting_root(
    engine: &Engine,
    container: &StoredContainer,
    users: Option<&OwnedFd>,
) -> std::result::Result<Vec<Step>, TreeError> {
    let StoredContainer { config, dir } = container;
    let layers = layer_dirs(engine, &config.image, "copy")?;
    let is_root = engine.privileges.is_root();
    let map = engine.privileges.map_for(&config.id);
    let ids = users.map(|it| it.as_fd()).filter(|_| is_root);
    let root = root_mount(&RootRequest { layers: &layers, dir, ids: ids.map(|it| (it, &map)), is_root })?;
    let become_root = users.is_some().then_some(Step::BecomeRoot);
    let volumes = volume_dirs(engine, container, &layers)?;
    let mounts = HostMounts { config, dir, init: None, volumes, ids, is_root }.at_rest()?;
    let given = (!is_root).then(|| open_upper(dir)).transpose().map_err(host_error("cannot open the container"))?;
    let attach = Step::AttachRoot { root, at: c_path(&dir.root())? };
    let first = given.map(Step::GiveToRoot).into_iter().chain([Step::PrivateMounts, attach]);
    Ok(first.chain(become_root).chain(mounts).chain([Step::EnterRoot]).collect())
}
