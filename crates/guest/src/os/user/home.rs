//! Creates missing directories.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, mkdirat, openat};
use rustix::io::{Errno, Result};

use crate::os::openat2::open;

/// Creates a directory at an absolute path, with its parents. A new last part is given to `owner`, if there is one;
/// existing directories do not change.
///
/// # Errors
/// Fails if the kernel refuses a call; `INVAL` for a path that is not absolute.
pub(super) fn create(root: BorrowedFd<'_>, path: &str, mode: Mode, owner: Option<(Uid, Gid)>) -> Result<()> {
    let parts: Vec<&str> = path.strip_prefix('/').ok_or(Errno::INVAL)?.split('/').filter(|it| !it.is_empty()).collect();
    let mut so_far = String::new();
    let mut parent = open(root, c"/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    for (at, part) in parts.iter().enumerate() {
        so_far = format!("{so_far}/{part}");
        let name = CString::new(&*so_far).map_err(|_| Errno::INVAL)?;
        parent = match open(root, &name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) if at + 1 == parts.len() => make_dir(&parent, part, mode, owner)?,
            Err(Errno::NOENT) => make_dir(&parent, part, Mode::from_raw_mode(0o755), None)?,
            opened => opened?,
        };
    }
    Ok(())
}

/// Gives a directory of root to the user. Engines mount the volumes of an image as root's.
///
/// # Errors
/// Fails if the kernel refuses a call.
pub(super) fn take_over(root: BorrowedFd<'_>, path: &str, owner: (Uid, Gid), only_a_volume: bool) -> Result<()> {
    let name = CString::new(path).map_err(|_| Errno::INVAL)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (dir, top) = (open(root, &name, flags, Mode::empty())?, open(root, c"/", flags, Mode::empty())?);
    let (stat, root_stat) = (fstat(&dir)?, fstat(&top)?);
    let is_mount = stat.st_dev != root_stat.st_dev;
    let is_world_writable = stat.st_mode & 0o002 != 0;
    if stat.st_uid != 0 || is_world_writable || only_a_volume && !is_mount {
        return Ok(());
    }
    fchown(&dir, Some(owner.0), Some(owner.1))
}

/// Creates a directory with this mode, independent of the process's umask.
fn make_dir(parent: &OwnedFd, name: &str, mode: Mode, owner: Option<(Uid, Gid)>) -> Result<OwnedFd> {
    mkdirat(parent, name, Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(parent, name, flags, Mode::empty())?;
    // In this order: root may lack the permission to change the mode of a file that belongs to another user.
    fchmod(&dir, mode)?;
    if let Some((uid, gid)) = owner {
        fchown(&dir, Some(uid), Some(gid))?;
    }
    Ok(dir)
}
