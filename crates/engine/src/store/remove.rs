//! Removes directories with any content.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;

use coracle_host::tree::DirHandle;

/// Removes a directory in another one, with its content.
pub(crate) fn remove_entry(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let dir = DirHandle::from(File::from(dir.try_clone_to_owned()?));
    dir.remove_all(OsStr::from_bytes(name.to_bytes()))
}
