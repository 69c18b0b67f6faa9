//! Detached mounts: overlays, and copies of host directories with other attributes.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Result;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};

use super::fs_ids::FsIds;
use super::kernel::{ATTR_IDMAP, MountAttributes, mount_setattr};

/// An overlay to mount. The paths are absolute, or lead through `/proc/self/fd`.
#[derive(Debug)]
pub(crate) struct OverlayPlan {
    /// Lower layers, topmost first.
    pub(crate) lower: Vec<CString>,
    pub(crate) upper: CString,
    pub(crate) work: CString,
    /// Whether whiteouts and opaque directories are marked in `user.*`, as is needed without root.
    pub(crate) user_attributes: bool,
}

/// How a directory or file of the host is mounted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeOptions<'a> {
    pub(crate) attributes: MountAttrFlags,
    /// Ids are mapped by this user namespace: id 0 in it is id 0 on the disk.
    pub(crate) ids: Option<BorrowedFd<'a>>,
    pub(crate) recursive: bool,
}

/// Creates a detached overlay mount. Allocates nothing, so that a child may call it.
pub(super) fn build_overlay(plan: &OverlayPlan) -> Result<OwnedFd> {
    let context = fsopen(c"overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, c"source", c"overlay")?;
    for layer in &plan.lower {
        fsconfig_set_string(&context, c"lowerdir+", layer.as_c_str())?;
    }
    fsconfig_set_string(&context, c"upperdir", plan.upper.as_c_str())?;
    fsconfig_set_string(&context, c"workdir", plan.work.as_c_str())?;
    if plan.user_attributes {
        fsconfig_set_flag(&context, c"userxattr")?;
    }
    fsconfig_create(&context)?;
    // Device nodes, of the image or created inside, lead to no device.
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// The same for layers with mapped ids. The overlay creates its own files as the user who mounts it, so that user must be
/// mapped.
pub(crate) fn build_mapped_overlay(plan: &OverlayPlan, root: Option<(u32, u32)>) -> Result<OwnedFd> {
    let _ids = root.map(|(uid, gid)| FsIds::become_user(uid, gid)).transpose()?;
    build_overlay(plan)
}

/// Attaches a mount at a path in this process's mount namespace.
pub(crate) fn attach_mount(mount: &OwnedFd, at: &Path) -> std::io::Result<()> {
    let at = openat2(CWD, at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount, c"", &at, c"", flags)?)
}

/// Detaches every mount beneath a directory, whose path has no character that the kernel escapes.
pub(crate) fn detach_mounts(dir: &Path) -> std::io::Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let points = mounts.lines().filter_map(|it| it.split(' ').nth(4)).map(Path::new);
    let mut beneath: Vec<_> = points.filter(|it| it.starts_with(dir)).collect();
    // In reverse order, since a mount may be on top of an earlier one.
    beneath.reverse();
    for point in beneath {
        match unmount(point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            // It was detached together with the mount below it.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(err) => return Err(err.into()),
        }
    }
    Ok(())
}

/// Returns a detached copy of the mount that contains `path`, from there down. `path` must not contain links.
pub(crate) fn clone_tree(path: &CStr, options: TreeOptions<'_>) -> Result<OwnedFd> {
    let file = openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_SYMLINKS)?;
    clone_opened(file.as_fd(), options)
}

/// The same for a file that is open.
pub(super) fn clone_opened(file: BorrowedFd<'_>, options: TreeOptions<'_>) -> Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let recursive = if options.recursive { OpenTreeFlags::AT_RECURSIVE } else { OpenTreeFlags::empty() };
    let tree = open_tree(file, c"", flags | recursive)?;
    let mapped = options.ids.map_or((0, 0), |it| (ATTR_IDMAP, it.as_raw_fd().unsigned_abs().into()));
    let set = u64::from(options.attributes.bits()) | mapped.0;
    if set != 0 {
        let attributes = MountAttributes { set, user_namespace: mapped.1, ..MountAttributes::default() };
        mount_setattr(&tree, options.recursive, &attributes)?;
    }
    Ok(tree)
}
