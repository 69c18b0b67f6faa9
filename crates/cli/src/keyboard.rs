//! Keyboard input. It is read only while a caller waits for it.

use std::io;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::termios::ttyname;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

/// Size of a read.
const BUFFER: usize = 4096;

/// The terminal of standard input.
pub(super) struct Keyboard(Receiver);

impl Keyboard {
    /// Opens the terminal again, so that the non-blocking mode does not affect other programs on it.
    pub(super) fn open() -> io::Result<Self> {
        let name = ttyname(io::stdin(), Vec::new())?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = open(name.as_c_str(), flags, Mode::empty())?;
        // Tokio has no type for terminals; they can be read like pipes.
        Receiver::from_owned_fd_unchecked(terminal).map(Self)
    }

    /// The next input; empty at its end. Cancel safe.
    pub(super) async fn next(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; BUFFER];
        match self.0.read(&mut bytes).await {
            Ok(count) => bytes.truncate(count),
            // The terminal is closed.
            Err(err) if err.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => bytes.clear(),
            Err(err) => return Err(err),
        }
        Ok(bytes)
    }

    /// The same; `None` if nothing is typed within that time.
    pub(super) async fn next_within(&mut self, time: Duration) -> io::Result<Option<Vec<u8>>> {
        timeout(time, self.next()).await.ok().transpose()
    }
}
