//! Keys of a person, as they are typed: nothing is read while nobody waits for it.

use std::io::{self, Stdin};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::timeout;

/// Bytes that are read at once.
const BUFFER: usize = 4096;

/// Standard input, a terminal. One at a time.
pub(super) struct Keyboard(AsyncFd<Stdin>);

impl Keyboard {
    pub(super) fn open() -> io::Result<Self> {
        AsyncFd::with_interest(io::stdin(), Interest::READABLE).map(Self)
    }

    /// What is typed next; nothing at its end. Safe to abandon.
    pub(super) async fn next(&self) -> io::Result<Vec<u8>> {
        loop {
            let mut ready = self.0.readable().await?;
            if !is_readable(self.0.get_ref()) {
                ready.clear_ready();
                continue;
            }
            let mut bytes = vec![0; BUFFER];
            match rustix::io::read(self.0.get_ref(), &mut bytes) {
                Ok(count) => {
                    bytes.truncate(count);
                    return Ok(bytes);
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                // The terminal is gone.
                Err(rustix::io::Errno::IO) => return Ok(Vec::new()),
                Err(err) => return Err(err.into()),
            }
        }
    }

    /// The same; none when nothing is typed within that time.
    pub(super) async fn next_within(&self, time: Duration) -> io::Result<Option<Vec<u8>>> {
        timeout(time, self.next()).await.ok().transpose()
    }
}

fn is_readable(input: &Stdin) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(input, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}
