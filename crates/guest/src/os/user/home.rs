//! Makes directories that are missing.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Gid, Mode, OFlags, Uid, fchmod, fchown, fstat, mkdirat, openat};
use rustix::io::{Errno, Result};

use crate::os::openat2::open;

/// Makes an absolute path a directory, with its parents. A last part that was missing is given to `owner`, if there is
/// one; existing directories are left alone.
///
/// # Errors
/// The kernel's. `INVAL` for a path that is not absolute.
pub(super) fn create(root: BorrowedFd<'_>, path: &str, mode: Mode, owner: Option<(Uid, Gid)>) -> Result<()> {
    let parts: Vec<&str> = path.strip_prefix('/').ok_or(Errno::INVAL)?.split('/').filter(|it| !it.is_empty()).collect();
    let mut so_far = String::new();
    let mut parent = open(root, c"/", OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
    for (at, part) in parts.iter().enumerate() {
        so_far = format!("{so_far}/{part}");
        let name = CString::new(&*so_far).map_err(|_| Errno::INVAL)?;
        parent = match open(root, &name, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) if at + 1 == parts.len() => made(&parent, part, mode, owner)?,
            Err(Errno::NOENT) => made(&parent, part, Mode::from_raw_mode(0o755), None)?,
            opened => opened?,
        };
    }
    Ok(())
}

/// Gives a directory of root's to the user. An engine mounts the volumes of an image as root's.
///
/// # Errors
/// The kernel's.
pub(super) fn take_over(root: BorrowedFd<'_>, path: &str, owner: (Uid, Gid), only_a_volume: bool) -> Result<()> {
    let name = CString::new(path).map_err(|_| Errno::INVAL)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let (there, above) = (open(root, &name, flags, Mode::empty())?, open(root, c"/", flags, Mode::empty())?);
    let (stat, of_root) = (fstat(&there)?, fstat(&above)?);
    let another_mount = stat.st_dev != of_root.st_dev;
    let for_everybody = stat.st_mode & 0o002 != 0;
    if stat.st_uid != 0 || for_everybody || only_a_volume && !another_mount {
        return Ok(());
    }
    fchown(&there, Some(owner.0), Some(owner.1))
}

/// Independent of this process's umask.
fn made(parent: &OwnedFd, name: &str, mode: Mode, owner: Option<(Uid, Gid)>) -> Result<OwnedFd> {
    mkdirat(parent, name, Mode::RWXU)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(parent, name, flags, Mode::empty())?;
    // In this order: not every root may change the mode of a file that belongs to another user.
    fchmod(&made, mode)?;
    if let Some((uid, gid)) = owner {
        fchown(&made, Some(uid), Some(gid))?;
    }
    Ok(made)
}
