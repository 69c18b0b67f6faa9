//! Programs that serve a running container: identified beyond the reuse of their number, and ended with it.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use coracle_types::ProcessId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Limit of the time that a killed process takes to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle to a process that is still the recorded one.
pub(super) fn open(process: &ProcessId) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // The handle came first: from here on the number cannot lead to another process.
    process.alive().then_some(handle)
}

/// Kills a recorded process and waits until its files are closed.
pub(super) fn end(process: &ProcessId) -> io::Result<()> {
    let Some(handle) = open(process) else { return Ok(()) };
    match pidfd_send_signal(&handle, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => return Err(errno.into()),
    }
    if is_readable_within(&handle, KILL_TIMEOUT)? { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

/// Waits for a descriptor to become readable, or its other end to be closed.
pub(super) fn is_readable_within(fd: &OwnedFd, patience: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    Ok(rustix::io::retry_on_intr(|| poll(&mut fds, Some(&timeout)))? > 0)
}
