//! Enters namespaces of another process, and puts descriptors at fixed numbers.
#![expect(unsafe_code, reason = "namespaces and descriptors of this process are changed under its feet")]

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::{Errno, Result};
use rustix::thread::UnshareFlags;

/// Leaves namespaces that this process shares with its parent.
pub(super) fn unshare(flags: UnshareFlags) -> Result<()> {
    // SAFETY: only called in a child that shares neither descriptors nor directories with another thread.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Enters the namespaces of these kinds, of a process by its pidfd or of one namespace by its file.
pub(super) fn enter(of: BorrowedFd<'_>, kinds: libc::c_int) -> Result<()> {
    // SAFETY: takes a descriptor that is open.
    let returned = unsafe { libc::setns(of.as_raw_fd(), kinds) };
    if returned == 0 { Ok(()) } else { Err(last_error()) }
}

/// Makes the descriptor `number` a copy of `file` that stays open in `execve`. Closes the previous descriptor of that number.
pub(super) fn duplicate_to(file: BorrowedFd<'_>, number: i32) -> Result<()> {
    // SAFETY: this child uses no descriptor of that number any more: the step comes after all that take descriptors.
    let returned = if file.as_raw_fd() == number {
        unsafe { libc::fcntl(number, libc::F_SETFD, 0) }
    } else {
        unsafe { libc::dup2(file.as_raw_fd(), number) }
    };
    if returned < 0 { Err(last_error()) } else { Ok(()) }
}

/// The same, but `execve` closes the copy, as it does `file`.
pub(super) fn duplicate_until_execve(file: BorrowedFd<'_>, number: i32) -> Result<()> {
    if file.as_raw_fd() == number {
        return Ok(());
    }
    // SAFETY: as for `duplicate_to`.
    let returned = unsafe { libc::dup3(file.as_raw_fd(), number, libc::O_CLOEXEC) };
    if returned < 0 { Err(last_error()) } else { Ok(()) }
}

pub(super) fn last_error() -> Errno {
    Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
