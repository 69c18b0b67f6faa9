//! What a command printed, on its way from a channel to two captures and to whoever watches.

use coracle_protocol as protocol;
use tokio::sync::mpsc;

use coracle_types::{Capture, Chunk, Stream};

/// Both outputs of a command.
#[derive(Debug)]
pub(crate) struct Outputs {
    stdout: Capture,
    stderr: Capture,
    live: Option<mpsc::Sender<Chunk>>,
    /// Kept, and not yet taken by who watches; and how much room it still holds.
    pending: Option<(Chunk, usize)>,
}

impl Outputs {
    pub(crate) fn new(keep_bytes: usize, live: Option<mpsc::Sender<Chunk>>) -> Self {
        Self { stdout: Capture::new(keep_bytes), stderr: Capture::new(keep_bytes), live, pending: None }
    }

    /// Where each stream goes on.
    pub(crate) fn at(&self) -> [u64; 2] {
        [self.stdout.total_bytes(), self.stderr.total_bytes()]
    }

    /// Takes a piece. How much room is free again: none when somebody has to take it first.
    pub(crate) fn take(&mut self, stream: protocol::Stream, offset: u64, bytes: Vec<u8>) -> usize {
        let (stream, capture) = match stream {
            protocol::Stream::Stdout => (Stream::Stdout, &mut self.stdout),
            protocol::Stream::Stderr => (Stream::Stderr, &mut self.stderr),
        };
        capture.skip(offset.saturating_sub(capture.total_bytes()));
        capture.push(&bytes);
        let room = bytes.len();
        if self.live.is_none() {
            return room;
        }
        self.pending = Some((Chunk { stream, bytes, offset }, room));
        0
    }

    /// A piece waits for who watches.
    pub(crate) fn pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Somebody watches.
    pub(crate) fn watched(&self) -> bool {
        self.live.is_some()
    }

    /// Passes on what waits. How much room is free again. Safe to abandon.
    pub(crate) async fn pass_on(&mut self) -> usize {
        let live = self.live.clone();
        let place = match &live {
            None => None,
            Some(live) => live.reserve().await.ok(),
        };
        let Some((chunk, room)) = self.pending.take() else { return 0 };
        match place {
            Some(place) => place.send(chunk),
            // Who went away wants no more; the command goes on.
            None => self.live = None,
        }
        room
    }

    /// Nobody is told any more: who withdrew may not take it.
    pub(crate) fn unwatch(&mut self) {
        self.live = None;
    }

    /// The channel is gone, and with it the room that a waiting piece held.
    pub(crate) fn forget_room(&mut self) {
        if let Some((_, room)) = &mut self.pending {
            *room = 0;
        }
    }

    /// Both captures, of streams of that length.
    pub(crate) fn finish(&mut self, [stdout, stderr]: [u64; 2]) -> (Capture, Capture) {
        self.stdout.skip(stdout.saturating_sub(self.stdout.total_bytes()));
        self.stderr.skip(stderr.saturating_sub(self.stderr.total_bytes()));
        (std::mem::take(&mut self.stdout), std::mem::take(&mut self.stderr))
    }
}
