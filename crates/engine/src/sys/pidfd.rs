//! Waits for processes by their descriptors.
#![expect(unsafe_code, reason = "tokio asks for a promise about descriptors")]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a pidfd with Tokio. It is readable once the process has ended.
pub(crate) fn watch_process(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays the same open descriptor until it is dropped.
    unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }.map_err(io::Error::from)
}
