//! Frames of one channel that wait to be looked at.
//!
//! A frame costs more than the bytes in it, so data that follows on data that waits becomes one frame with it. How many
//! bytes may wait is decided where frames are received: by a window for data, by what was announced for payloads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::protocol::{CHUNK, Request};
use crate::server::codec::Frame;
use crate::server::quota::Reservation;

/// Frames without a byte that wait, at most. A host says a channel to cancel, to resize or to leave a few times.
const MAX_BARE: usize = 256;

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Frame<Request>>,
    bare: usize,
    /// Nobody takes anything out any more.
    closed: bool,
    /// Nothing comes any more.
    ended: bool,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    wake: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a frame that was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It waits.
    Waits,
    /// The channel has said its last word, so it is dropped.
    Closed,
    /// Too many wait.
    Full,
}

/// Puts frames in. To drop it is to say that nothing more comes.
#[derive(Debug)]
pub(crate) struct Sender(Arc<Queue>);

/// What a channel receives after it was opened. To drop it is to receive nothing more.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: Arc<Queue>,
    /// The bytes that the opening frame announced.
    payload: Option<Reservation>,
}

/// An empty inbox. `payload` is held until that payload [is taken](Inbox::payload_is_taken), or the inbox is dropped.
pub(crate) fn inbox(payload: Option<Reservation>) -> (Sender, Inbox) {
    let queue = Arc::<Queue>::default();
    (Sender(Arc::clone(&queue)), Inbox { queue, payload })
}

impl Sender {
    pub(crate) fn push(&self, frame: Frame<Request>) -> Pushed {
        let mut state = self.0.lock();
        if state.closed {
            return Pushed::Closed;
        }
        let Some(frame) = join(&mut state.frames, frame) else { return Pushed::Waits };
        let is_bare = frame.payload.is_empty();
        if is_bare && state.bare >= MAX_BARE {
            return Pushed::Full;
        }
        state.bare += usize::from(is_bare);
        state.frames.push_back(frame);
        self.0.wake.notify_one();
        Pushed::Waits
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.lock().closed
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.wake.notify_one();
    }
}

impl Inbox {
    /// The next frame; `None` when nothing more comes. Safe to abandon.
    pub(crate) async fn recv(&mut self) -> Option<Frame<Request>> {
        loop {
            {
                let mut state = self.queue.lock();
                if let Some(frame) = state.frames.pop_front() {
                    state.bare -= usize::from(frame.payload.is_empty());
                    return Some(frame);
                }
                if state.ended {
                    return None;
                }
            }
            self.queue.wake.notified().await;
        }
    }

    /// The payload is held no longer, or elsewhere.
    pub(crate) fn payload_is_taken(&mut self) {
        self.payload = None;
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.closed = true;
        state.frames.clear();
    }
}

/// Makes a frame one with the last that waits, if it follows on it; else gives it back.
fn join(waiting: &mut VecDeque<Frame<Request>>, frame: Frame<Request>) -> Option<Frame<Request>> {
    // It says nothing at all.
    if matches!(frame.head, Request::Data { last: false }) && frame.payload.is_empty() {
        return None;
    }
    let Some(before) = waiting.back_mut() else { return Some(frame) };
    let fits = !before.payload.is_empty() && before.payload.len() + frame.payload.len() <= CHUNK;
    match (&mut before.head, &frame.head) {
        (Request::Data { last: before @ false }, Request::Data { last }) if fits => *before = *last,
        (Request::More, Request::More) if fits && !frame.payload.is_empty() => {}
        // The latest size is the one that counts.
        (Request::Resize(before), Request::Resize(size)) => *before = *size,
        _ => return Some(frame),
    }
    before.payload.extend(frame.payload);
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{TerminalSize, WINDOW};

    fn data(bytes: &[u8], last: bool) -> Frame<Request> {
        Frame { channel: 1, head: Request::Data { last }, payload: bytes.to_vec() }
    }

    async fn all(mut inbox: Inbox) -> Vec<Frame<Request>> {
        let mut frames = Vec::new();
        while let Some(frame) = inbox.recv().await {
            frames.push(frame);
        }
        frames
    }

    #[tokio::test]
    async fn a_window_that_comes_byte_by_byte_waits_in_a_few_frames_and_whole() {
        let (sender, inbox) = inbox(None);
        let bytes: Vec<u8> = (0..WINDOW).map(|it| it as u8).collect();
        assert!(bytes.iter().all(|it| sender.push(data(&[*it], false)) == Pushed::Waits));
        assert_eq!(sender.push(data(&[], true)), Pushed::Waits);
        drop(sender);
        let frames = all(inbox).await;
        assert_eq!(frames.len(), bytes.len() / CHUNK);
        assert_eq!(frames.iter().filter(|it| it.head == Request::Data { last: true }).count(), 1);
        assert_eq!(frames.into_iter().flat_map(|it| it.payload).collect::<Vec<_>>(), bytes);
    }

    #[tokio::test]
    async fn what_does_not_follow_keeps_its_order() {
        let (sender, inbox) = inbox(None);
        for frame in [data(b"a", false), Frame::new(1, Request::Cancel), data(b"b", true), data(b"c", false)] {
            assert_eq!(sender.push(frame), Pushed::Waits);
        }
        drop(sender);
        let heads: Vec<_> = all(inbox).await.into_iter().map(|it| (it.head, it.payload)).collect();
        let (some, none) = (|it: &[u8]| it.to_vec(), Vec::new());
        assert_eq!(
            heads,
            [
                (Request::Data { last: false }, some(b"a")),
                (Request::Cancel, none),
                (Request::Data { last: true }, some(b"b")),
                (Request::Data { last: false }, some(b"c")),
            ]
        );
    }

    #[test]
    fn words_without_a_byte_are_counted_and_sizes_replace_each_other() {
        let (sender, inbox) = inbox(None);
        let size = |cols| Frame::new(1, Request::Resize(TerminalSize { cols, rows: 1 }));
        assert!((0..2 * MAX_BARE as u16).all(|it| sender.push(size(it)) == Pushed::Waits));
        let waited = (0..2 * MAX_BARE).take_while(|_| sender.push(Frame::new(1, Request::Cancel)) == Pushed::Waits);
        assert_eq!(waited.count(), MAX_BARE - 1);
        assert_eq!(sender.push(Frame::new(1, Request::Cancel)), Pushed::Full);
        drop(inbox);
        assert_eq!(sender.push(Frame::new(1, Request::Cancel)), Pushed::Closed);
    }
}
