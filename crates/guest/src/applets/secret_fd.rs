//! Reads the secret that the guest passed to this program.
#![expect(unsafe_code, reason = "a descriptor by its number has no safe wrapper")]

use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;

use crate::protocol::MAX_SECRET;

/// The descriptor of the secret, as in [`Exec::secret`](crate::protocol::Exec::secret).
const DESCRIPTOR: i32 = 3;

/// The guest writes the secret before the program starts.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

static TAKEN: AtomicBool = AtomicBool::new(false);

/// Reads the secret that the guest passed to this program, and closes its descriptor; `None` without one. Must be
/// called before the program opens any file, and only the first call returns the secret.
///
/// # Errors
/// Fails if the secret cannot be read, or is longer than the limit.
pub fn secret() -> io::Result<Option<Vec<u8>>> {
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(None);
    }
    // SAFETY: only the parent of this process knows the number, and it is used here once. If the number is not open, the
    // call fails.
    let is_open = unsafe { libc::fcntl(DESCRIPTOR, libc::F_GETFD) } != -1;
    if !is_open {
        return Ok(None);
    }
    // SAFETY: as above, and the descriptor is open.
    let given = unsafe { OwnedFd::from_raw_fd(DESCRIPTOR) };
    if !socket_domain(&given).is_ok_and(|it| it == AddressFamily::UNIX) {
        // An unrelated file that was left open by accident.
        return Ok(None);
    }
    let stream = UnixStream::from(given);
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut bytes = Vec::new();
    stream.take(MAX_SECRET as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() {
        0 => Ok(None),
        length if length > MAX_SECRET => Err(io::Error::other("the secret is longer than 16 KiB")),
        _ => Ok(Some(bytes)),
    }
}
