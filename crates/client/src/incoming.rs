//! What was said on one channel and not yet taken.
//!
//! A frame costs more than the bytes in it, so what follows on what waits becomes one with it: a program that prints byte
//! by byte is held cheaply. What does not follow is counted.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coracle_protocol::GuestMessage;
use tokio::sync::Notify;

/// Something that was said, with its payload.
pub(crate) type Incoming = (GuestMessage, Vec<u8>);

/// Things that wait on a channel, at most. Output leaves out a part now and then, and never thousands of times.
const MAX_WAITING: usize = 4096;

/// As long as no more waits, the order of the two streams is kept.
const IN_ORDER: usize = 256;

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Incoming>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts things in. To drop it is to say that nothing more comes.
#[derive(Debug)]
pub(crate) struct IncomingSender(Arc<Shared>);

/// Takes things out.
#[derive(Debug)]
pub(crate) struct IncomingReceiver(Arc<Shared>);

/// An empty inbox.
pub(crate) fn inbox() -> (IncomingSender, IncomingReceiver) {
    let shared = Arc::new(Shared::default());
    (IncomingSender(Arc::clone(&shared)), IncomingReceiver(shared))
}

impl IncomingSender {
    /// `false` when too much waits.
    pub(crate) fn put(&self, say: GuestMessage, payload: Vec<u8>) -> bool {
        let mut state = self.0.lock();
        let Some((say, payload)) = join(&mut state.waiting, say, payload) else { return true };
        let fits = state.waiting.len() < MAX_WAITING;
        if fits {
            state.waiting.push_back((say, payload));
            self.0.wake.notify_one();
        }
        fits
    }
}

impl Drop for IncomingSender {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_one();
    }
}

impl IncomingReceiver {
    /// The next thing; `None` when nothing more comes. Safe to abandon.
    pub(crate) async fn next(&mut self) -> Option<Incoming> {
        loop {
            {
                let mut state = self.0.lock();
                if let Some(heard) = state.waiting.pop_front() {
                    return Some(heard);
                }
                if state.closed {
                    return None;
                }
            }
            self.0.wake.notified().await;
        }
    }
}

/// Makes a piece one with what waits, if it follows on it; else gives it back.
fn join(waiting: &mut VecDeque<Incoming>, say: GuestMessage, payload: Vec<u8>) -> Option<Incoming> {
    let near = if waiting.len() < IN_ORDER { 1 } else { 2 };
    for (before, bytes) in waiting.iter_mut().rev().take(near) {
        match (before, &say) {
            (GuestMessage::Out { stream, offset }, GuestMessage::Out { stream: same, offset: next })
                if stream == same =>
            {
                if offset.checked_add(bytes.len() as u64) != Some(*next) {
                    break;
                }
            }
            (GuestMessage::Out { .. }, GuestMessage::Out { .. }) => continue,
            (GuestMessage::Data { last: before @ false }, GuestMessage::Data { last }) => *before = *last,
            _ => break,
        }
        bytes.extend(payload);
        return None;
    }
    Some((say, payload))
}

#[cfg(test)]
mod tests {
    use coracle_protocol::Stream;

    use super::*;

    fn out(stream: Stream, offset: u64) -> GuestMessage {
        GuestMessage::Out { stream, offset }
    }

    #[tokio::test]
    async fn bytes_that_follow_on_each_other_wait_as_one_and_two_streams_in_order() {
        let (tell, mut inbox) = inbox();
        for (stream, offset) in [(Stream::Stdout, 0), (Stream::Stdout, 1), (Stream::Stderr, 0), (Stream::Stdout, 2)] {
            assert!(tell.put(out(stream, offset), vec![b'x']));
        }
        drop(tell);
        assert_eq!(inbox.next().await, Some((out(Stream::Stdout, 0), b"xx".to_vec())));
        assert_eq!(inbox.next().await, Some((out(Stream::Stderr, 0), b"x".to_vec())));
        assert_eq!(inbox.next().await, Some((out(Stream::Stdout, 2), b"x".to_vec())));
        assert_eq!(inbox.next().await, None);
    }

    #[tokio::test]
    async fn two_streams_byte_by_byte_are_held_cheaply_and_whole() {
        const BYTES: u64 = 100_000;
        let (tell, mut inbox) = inbox();
        for offset in 0..BYTES {
            assert!(tell.put(out(Stream::Stdout, offset), vec![b'o']));
            assert!(tell.put(out(Stream::Stderr, offset), vec![b'e']));
        }
        drop(tell);
        let (mut next, mut count) = ([0; 2], 0);
        while let Some((GuestMessage::Out { stream, offset }, bytes)) = inbox.next().await {
            let next = &mut next[usize::from(stream == Stream::Stderr)];
            assert_eq!(offset, *next);
            *next += bytes.len() as u64;
            count += 1;
        }
        assert_eq!((next, count), ([BYTES; 2], IN_ORDER));
    }

    #[tokio::test]
    async fn pieces_of_a_file_wait_as_one_with_their_end() {
        let (tell, mut inbox) = inbox();
        for last in [false, false, true] {
            assert!(tell.put(GuestMessage::Data { last }, b"x".to_vec()));
        }
        assert_eq!(inbox.next().await, Some((GuestMessage::Data { last: true }, b"xxx".to_vec())));
    }

    #[test]
    fn what_does_not_follow_is_counted() {
        let (tell, _inbox) = inbox();
        let fit = (0..2 * MAX_WAITING as u64).take_while(|it| tell.put(out(Stream::Stdout, 2 * it), vec![0])).count();
        assert_eq!(fit, MAX_WAITING);
    }
}
