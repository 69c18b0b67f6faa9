//! Descriptors that the engine left open for PID 1, given by number on its command line.
#![expect(unsafe_code, reason = "a descriptor by its number has no safe wrapper")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// Takes ownership of a descriptor and sets it close-on-exec, so that no command inherits it. Must be called before the
/// program opens any file, and once for each number. Standard input is copied and replaced by `/dev/null`: some engines
/// pass on only the standard streams.
///
/// # Errors
/// Fails if the number is 1 or 2, or not open.
pub(crate) fn take(number: i32) -> io::Result<File> {
    let refused = || io::Error::other(format!("descriptor {number} was not left open for this program"));
    if number == 0 {
        let copy = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3).map_err(|_| refused())?;
        let dev_null = File::open("/dev/null")?;
        // SAFETY: both are open, and no value owns the number of standard input.
        if unsafe { libc::dup2(dev_null.as_raw_fd(), 0) } == -1 {
            return Err(io::Error::last_os_error());
        }
        return Ok(copy.into());
    }
    if number <= 2 {
        return Err(refused());
    }
    // SAFETY: for a number that is not open, the call fails and changes nothing.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
        return Err(refused());
    }
    // SAFETY: it is open, the parent of this process chose the number, and it is taken only once.
    Ok(unsafe { File::from_raw_fd(number) })
}
