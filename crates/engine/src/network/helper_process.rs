//! Helper processes of a running container, which are ended with it. They are identified by number and start time, since
//! numbers are reused.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use coracle_types::ProcessId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long a killed process may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the recorded process. `None` if it has ended, even if another process has its number.
pub(super) fn open(process: &ProcessId) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // Checked after the process was opened, since the descriptor never leads to another process.
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
