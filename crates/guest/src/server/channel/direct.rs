//! Answers written by the thread that made them.
//!
//! By way of the connection's writer an answer waits until the main thread is woken: as long as a short file act takes.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use rustix::io::fcntl_dupfd_cloexec;
use tokio::sync::{Mutex, MutexGuard, Notify};

/// A connection's socket, written to by its writer and other threads in turn.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    /// Non-blocking. Missing where the connection is no socket.
    socket: Option<UnixStream>,
    /// Held while frames are written. Bytes in it were not taken by the socket and go before all others.
    rest: Mutex<Vec<u8>>,
    cut: Notify,
}

impl Direct {
    pub(crate) fn new(stream: &tokio::net::UnixStream) -> Self {
        Self { socket: fcntl_dupfd_cloexec(stream, 0).ok().map(UnixStream::from), ..Self::default() }
    }

    /// Writes whole frames if no other thread writes and `claim` then allows it; else `false`, and nothing was written. What
    /// the socket has no room for is left to the connection's writer, so this never waits.
    pub(crate) fn write(&self, frames: &[u8], claim: impl FnOnce() -> bool) -> bool {
        let (Some(mut socket), Ok(mut rest)) = (self.socket.as_ref(), self.rest.try_lock()) else { return false };
        if !rest.is_empty() || !claim() {
            return false;
        }
        // Of a socket that failed the writer finds out.
        let written = socket.write(frames).unwrap_or(0);
        if written < frames.len() {
            rest.extend_from_slice(&frames[written..]);
            self.cut.notify_one();
        }
        true
    }

    /// Waits until some frame was not written whole.
    pub(crate) async fn is_cut(&self) {
        self.cut.notified().await;
    }

    /// The writer's turn, with what has to be written first.
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
    async fn a_frame_is_written_in_turn_and_only_by_who_may() {
        let (direct, mut theirs) = pair();
        assert!(!Direct::default().write(b"no socket", || true));
        assert!(!direct.write(b"not allowed", || false));
        let turn = direct.turn().await;
        assert!(!direct.write(b"not its turn", || panic!("claimed and not written")));
        drop(turn);
        assert!(direct.write(b"whole", || true));
        let mut heard = [0; 5];
        theirs.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"whole");
    }

    #[tokio::test]
    async fn nobody_waits_for_a_peer_that_does_not_read_and_no_byte_is_lost() {
        let (direct, mut theirs) = pair();
        let mut sent = Vec::new();
        while direct.turn().await.is_empty() {
            let frame = vec![sent.len() as u8; 10_000];
            assert!(direct.write(&frame, || true));
            sent.extend(frame);
        }
        direct.is_cut().await;
        assert!(!direct.write(b"before the rest", || true));
        let rest = std::mem::take(&mut *direct.turn().await);
        let mut heard = vec![0; sent.len() - rest.len()];
        theirs.read_exact(&mut heard).unwrap();
        assert!([heard, rest].concat() == sent, "bytes differ");
    }
}
