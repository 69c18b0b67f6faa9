//! Collects the output of a command in two captures, and passes it on to a watcher.

use coracle_protocol as protocol;
use tokio::sync::mpsc;

use coracle_types::{Capture, Chunk, Stream};

/// Both outputs of a command.
#[derive(Debug)]
pub(crate) struct Outputs {
    stdout: Capture,
    stderr: Capture,
    live: Option<mpsc::Sender<Chunk>>,
    /// A piece that is captured but not yet passed on, and its window credit.
    pending: Option<(Chunk, usize)>,
}

impl Outputs {
    pub(crate) fn new(keep_bytes: usize, live: Option<mpsc::Sender<Chunk>>) -> Self {
        Self { stdout: Capture::new(keep_bytes), stderr: Capture::new(keep_bytes), live, pending: None }
    }

    /// The offset at which each stream continues.
    pub(crate) fn at(&self) -> [u64; 2] {
        [self.stdout.total_bytes(), self.stderr.total_bytes()]
    }

    /// Captures a piece. Returns the credit to give back: none if the watcher must take the piece first.
    pub(crate) fn take(&mut self, stream: protocol::Stream, offset: u64, bytes: Vec<u8>) -> usize {
        let (stream, capture) = match stream {
            protocol::Stream::Stdout => (Stream::Stdout, &mut self.stdout),
            protocol::Stream::Stderr => (Stream::Stderr, &mut self.stderr),
        };
        capture.skip(offset.saturating_sub(capture.total_bytes()));
        capture.push(&bytes);
        let credit = bytes.len();
        if self.live.is_none() {
            return credit;
        }
        self.pending = Some((Chunk { stream, bytes, offset }, credit));
        0
    }

    /// Whether a piece waits for the watcher.
    pub(crate) fn pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether there is a watcher.
    pub(crate) fn is_watched(&self) -> bool {
        self.live.is_some()
    }

    /// Passes on the waiting piece, and returns the credit to give back. Cancel safe.
    pub(crate) async fn pass_on(&mut self) -> usize {
        let live = self.live.clone();
        let permit = match &live {
            None => None,
            Some(live) => live.reserve().await.ok(),
        };
        let Some((chunk, credit)) = self.pending.take() else { return 0 };
        match permit {
            Some(permit) => permit.send(chunk),
            // The watcher is gone; the command continues.
            None => self.live = None,
        }
        credit
    }

    /// Stops passing on output: the watcher may not read it any more.
    pub(crate) fn stop_watching(&mut self) {
        self.live = None;
    }

    /// Drops the credit of a waiting piece, because its channel is closed.
    pub(crate) fn forget_credit(&mut self) {
        if let Some((_, credit)) = &mut self.pending {
            *credit = 0;
        }
    }

    /// Both captures, for streams of these lengths.
    pub(crate) fn finish(&mut self, [stdout, stderr]: [u64; 2]) -> (Capture, Capture) {
        self.stdout.skip(stdout.saturating_sub(self.stdout.total_bytes()));
        self.stderr.skip(stderr.saturating_sub(self.stderr.total_bytes()));
        (std::mem::take(&mut self.stdout), std::mem::take(&mut self.stderr))
    }
}
