//! Replies written directly by the thread that handled the call.
//!
//! Through the connection's writer, a reply would wait until the main thread is scheduled, which takes as long as a short
//! file operation.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use rustix::io::fcntl_dupfd_cloexec;
use tokio::sync::{Mutex, MutexGuard, Notify};

/// A connection's socket, to which its writer and other threads write in turn.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    /// Non-blocking. `None` if the connection is not a socket.
    socket: Option<UnixStream>,
    /// Locked while frames are written. Bytes in it did not fit into the socket and precede all others.
    rest: Mutex<Vec<u8>>,
    rest_added: Notify,
}

impl Direct {
    pub(crate) fn new(stream: &tokio::net::UnixStream) -> Self {
        Self { socket: fcntl_dupfd_cloexec(stream, 0).ok().map(UnixStream::from), ..Self::default() }
    }

    /// Writes whole frames if no other thread writes and `claim` then allows it; else returns `false` and writes nothing. What
    /// does not fit into the socket is left to the connection's writer, so this never waits.
    pub(crate) fn write(&self, frames: &[u8], claim: impl FnOnce() -> bool) -> bool {
        let (Some(mut socket), Ok(mut rest)) = (self.socket.as_ref(), self.rest.try_lock()) else { return false };
        if !rest.is_empty() || !claim() {
            return false;
        }
        // The writer detects a failed socket.
        let written = socket.write(frames).unwrap_or(0);
        if written < frames.len() {
            rest.extend_from_slice(&frames[written..]);
            self.rest_added.notify_one();
        }
        true
    }

    /// Waits until a frame was not written completely.
    pub(crate) async fn wait_for_rest(&self) {
        self.rest_added.notified().await;
    }

    /// Locks the socket for the writer, and returns the bytes that must be written first.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, Vec<u8>> {
        self.rest.lock().await
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn pair() -> (Direct, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Direct { socket: Some(ours), ..Direct::default() }, theirs)
    }

    #[tokio::test]
    async fn a_frame_is_written_only_if_claimed_and_while_no_other_thread_writes() {
        let (direct, mut theirs) = pair();
        assert!(!Direct::default().write(b"no socket", || true));
        assert!(!direct.write(b"not allowed", || false));
        let turn = direct.turn().await;
        assert!(!direct.write(b"while locked", || panic!("claimed and not written")));
        drop(turn);
        assert!(direct.write(b"whole", || true));
        let mut received = [0; 5];
        theirs.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"whole");
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_blocks_no_writer_and_loses_no_byte() {
        let (direct, mut theirs) = pair();
        let mut sent = Vec::new();
        while direct.turn().await.is_empty() {
            let frame = vec![sent.len() as u8; 10_000];
            assert!(direct.write(&frame, || true));
            sent.extend(frame);
        }
        direct.wait_for_rest().await;
        assert!(!direct.write(b"before the rest", || true));
        let rest = std::mem::take(&mut *direct.turn().await);
        let mut received = vec![0; sent.len() - rest.len()];
        theirs.read_exact(&mut received).unwrap();
        assert!([received, rest].concat() == sent, "bytes differ");
    }
}
