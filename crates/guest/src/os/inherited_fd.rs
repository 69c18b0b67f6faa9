//! Descriptors that the engine left open for PID 1, named by their numbers on its command line.
#![expect(unsafe_code, reason = "a descriptor by its number has no safe wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// Takes a descriptor and sets it close-on-exec, so that no command inherits it. Must be called before the program opens
/// any file, and once for each number. Of standard input a copy is taken, and nothing is left there to read: some engines
/// pass on the standard streams alone.
///
/// # Errors
/// The number is one of 1 and 2, or is not open.
pub(crate) fn take(number: i32) -> io::Result<File> {
    let refused = || io::Error::other(format!("descriptor {number} was not left open for this program"));
    if number == 0 {
        let copy = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3).map_err(|_| refused())?;
        let nothing = File::open("/dev/null")?;
        // SAFETY: both are open, and the number of standard input is not owned by any value.
        if unsafe { libc::dup2(nothing.as_raw_fd(), 0) } == -1 {
            return Err(io::Error::last_os_error());
        }
        return Ok(copy.into());
    }
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
