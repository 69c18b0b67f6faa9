//! The root file system: an overlay of the image's layers and the container's own layer.

use std::ffi::CString;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use coracle_types::Result;
use rustix::mount::MountAttrFlags;

use super::mounts::{TreeError, c_path, map_tree};
use crate::container::directory::ContainerDir;
use crate::ids::IdMap;
use crate::sys::{OverlayPlan, RootMount, build_mapped_overlay};

/// The parts of a root file system.
#[derive(Debug)]
pub(crate) struct RootRequest<'a> {
    /// Topmost first.
    pub(crate) layers: &'a [PathBuf],
    pub(crate) dir: &'a ContainerDir,
    /// The user namespace whose mapping applies, and that mapping; only for root.
    pub(crate) ids: Option<(BorrowedFd<'a>, &'a IdMap)>,
    pub(crate) is_root: bool,
}

pub(crate) fn root_mount(request: &RootRequest<'_>) -> std::result::Result<RootMount, TreeError> {
    let plain = |path: &Path| Ok(c_path(path)?);
    if !request.is_root {
        let lower = request.layers.iter().map(|it| plain(it)).collect::<std::result::Result<_, TreeError>>()?;
        let (upper, work) = (plain(&request.dir.upper())?, plain(&request.dir.work())?);
        return Ok(RootMount::Overlay(OverlayPlan { lower, upper, work, user_attributes: true }));
    }
    // Copies of the mounts have the mapping. Paths name them through their descriptors, which stay open until the
    // overlay is mounted. `upper` and `work` have to be on one mount.
    let mut mapped: Vec<OwnedFd> = Vec::new();
    let mut map = |path: &Path| -> std::result::Result<CString, TreeError> {
        let tree = map_tree(path, MountAttrFlags::empty(), request.ids.map(|it| it.0))?;
        let name = c_path(Path::new(&format!("/proc/self/fd/{}", tree.as_raw_fd())))?;
        mapped.push(tree);
        Ok(name)
    };
    let lower = request.layers.iter().map(|it| map(it)).collect::<std::result::Result<_, _>>()?;
    let own = map(request.dir.path())?;
    let below = |name: &str| -> Result<CString> { super::mounts::c_text(&format!("{}/{name}", own.to_string_lossy())) };
    let plan = OverlayPlan { lower, upper: below("upper")?, work: below("work")?, user_attributes: false };
    let mapped_root = request.ids.and_then(|it| it.1.host_root());
    let mount =
        build_mapped_overlay(&plan, mapped_root).map_err(|errno| TreeError::failed(request.dir.path(), errno))?;
    drop(mapped);
    Ok(RootMount::Prepared(mount))
}
