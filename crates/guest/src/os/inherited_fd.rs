//! Descriptors that the engine left open for PID 1, named by their numbers on its command line.
#![expect(unsafe_code, reason = "a descriptor by its number has no safe wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

/// Takes a descriptor and sets it close-on-exec, so that no command inherits it. Must be called before the program opens
/// any file, and once for each number.
///
/// # Errors
/// The number is one of 0, 1 and 2, or is not open.
pub(crate) fn take(number: i32) -> io::Result<File> {
    let refused = || io::Error::other(format!("descriptor {number} was not left open for this program"));
    if number <= 2 {
        return Err(refused());
    }
    // SAFETY: a number that is not open belongs to no descriptor, which this call detects.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(refused());
    }
    // SAFETY: it is open, the parent of this process chose the number, and it is taken here once.
    Ok(unsafe { File::from_raw_fd(number) })
}
