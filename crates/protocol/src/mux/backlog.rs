//! Queued messages of one channel.
//!
//! A message costs more memory than its bytes, so one that continues a queued message is joined with it: this limits the
//! memory for a program that prints byte by byte. [`Mux`](super::Mux) limits the queued bytes; this module limits the number
//! of small messages.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::CHUNK;

/// Up to this many queued messages, a message is joined only with the last one, which retains the order of two streams.
const IN_ORDER: usize = 256;

/// Messages with fewer bytes are counted.
const SMALL: usize = 1 << 10;

/// How a message relates to a queued one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continue {
    /// It was joined with it.
    Joined,
    /// It belongs to another stream, and may be joined with an earlier message.
    OtherStream,
    /// It cannot be joined.
    No,
}

/// A message that may continue another.
pub trait Continues {
    /// Whether the message consists only of its bytes, so that an empty one can be dropped.
    fn is_only_bytes(&self) -> bool;

    /// Joins `next` with this message, which has `bytes` bytes, if it continues it.
    fn join(&mut self, bytes: usize, next: &Self) -> Continue;
}

#[derive(Debug)]
struct BacklogState<M> {
    queue: VecDeque<(M, Vec<u8>)>,
    /// Number of messages with few bytes.
    small: usize,
    limit: usize,
    /// Whether the receiver was dropped.
    closed: bool,
    /// Whether the sender was dropped.
    ended: bool,
    waker: Option<Waker>,
}

type SharedBacklog<M> = Arc<Mutex<BacklogState<M>>>;

fn lock<M>(shared: &SharedBacklog<M>) -> MutexGuard<'_, BacklogState<M>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of adding a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// It is queued.
    Waits,
    /// The receiver was dropped.
    Closed,
    /// Too many small messages are queued.
    Full,
}

/// Adds messages. Dropping it ends the backlog.
#[derive(Debug)]
pub struct BacklogSender<M>(SharedBacklog<M>);

/// Receives queued messages.
#[derive(Debug)]
pub struct Backlog<M>(SharedBacklog<M>);

/// Creates an empty backlog with a limit of small messages.
#[must_use]
pub fn backlog<M: Continues>(limit: usize) -> (BacklogSender<M>, Backlog<M>) {
    let state = BacklogState { queue: VecDeque::new(), small: 0, limit, closed: false, ended: false, waker: None };
    let shared = Arc::new(Mutex::new(state));
    (BacklogSender(Arc::clone(&shared)), Backlog(shared))
}

impl<M: Continues> BacklogSender<M> {
    /// Adds a message.
    pub fn push(&self, message: M, bytes: Vec<u8>) -> PushOutcome {
        let waker = {
            let mut state = lock(&self.0);
            if state.closed {
                return PushOutcome::Closed;
            }
            if message.is_only_bytes() && bytes.is_empty() {
                return PushOutcome::Waits;
            }
            let Some((message, bytes)) = state.join(message, bytes) else { return PushOutcome::Waits };
            let is_small = bytes.len() < SMALL;
            if is_small && state.small >= state.limit {
                return PushOutcome::Full;
            }
            state.small += usize::from(is_small);
            state.queue.push_back((message, bytes));
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
        PushOutcome::Waits
    }
}

impl<M> Drop for BacklogSender<M> {
    fn drop(&mut self) {
        let waker = {
            let mut state = lock(&self.0);
            state.ended = true;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<M> Backlog<M> {
    /// The next message; `None` after the last one. Cancel safe.
    pub async fn recv(&mut self) -> Option<(M, Vec<u8>)> {
        poll_fn(|cx| {
            let mut state = lock(&self.0);
            match state.queue.pop_front() {
                Some(next) => {
                    state.small -= usize::from(next.1.len() < SMALL);
                    Poll::Ready(Some(next))
                }
                None if state.ended => Poll::Ready(None),
                None => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<M> Drop for Backlog<M> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.closed = true;
        state.queue.clear();
    }
}

impl<M: Continues> BacklogState<M> {
    /// Joins a message with a queued one, or returns it.
    fn join(&mut self, message: M, bytes: Vec<u8>) -> Option<(M, Vec<u8>)> {
        let near = if self.queue.len() < IN_ORDER { 1 } else { 2 };
        for (before, queued) in self.queue.iter_mut().rev().take(near) {
            if queued.len() + bytes.len() > CHUNK {
                break;
            }
            match before.join(queued.len(), &message) {
                Continue::Joined => {
                    let was_small = queued.len() < SMALL;
                    queued.extend(bytes);
                    self.small -= usize::from(was_small && queued.len() >= SMALL);
                    return None;
                }
                Continue::OtherStream => {}
                Continue::No => break,
            }
        }
        Some((message, bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Context;

    use super::*;
    use crate::WINDOW;

    /// Bytes of a stream, or a message without bytes.
    #[derive(Debug, PartialEq)]
    enum Message {
        Piece(u8),
        Bare,
    }

    impl Continues for Message {
        fn is_only_bytes(&self) -> bool {
            matches!(self, Self::Piece(_))
        }

        fn join(&mut self, _: usize, next: &Self) -> Continue {
            match (self, next) {
                (Self::Piece(stream), Self::Piece(next)) if stream == next => Continue::Joined,
                (Self::Piece(_), Self::Piece(_)) => Continue::OtherStream,
                _ => Continue::No,
            }
        }
    }

    /// All queued messages.
    fn all(backlog: &mut Backlog<Message>) -> Vec<(Message, Vec<u8>)> {
        let mut cx = Context::from_waker(Waker::noop());
        std::iter::from_fn(|| match pin!(backlog.recv()).poll(&mut cx) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        })
        .collect()
    }

    #[test]
    fn single_bytes_are_joined_to_a_few_messages() {
        let (sender, mut backlog) = backlog(8);
        let bytes: Vec<u8> = (0..WINDOW).map(|it| it as u8).collect();
        assert!(bytes.iter().all(|it| sender.push(Message::Piece(0), vec![*it]) == PushOutcome::Waits));
        assert_eq!(sender.push(Message::Piece(0), vec![]), PushOutcome::Waits);
        let all = all(&mut backlog);
        assert_eq!(all.len(), bytes.len() / CHUNK);
        assert_eq!(all.into_iter().flat_map(|it| it.1).collect::<Vec<_>>(), bytes);
    }

    #[test]
    fn single_bytes_of_two_streams_are_joined_and_stay_in_order_while_few_are_queued() {
        let (sender, mut backlog) = backlog(2 * IN_ORDER);
        for _ in 0..10 * IN_ORDER {
            assert_eq!(sender.push(Message::Piece(0), vec![0]), PushOutcome::Waits);
            assert_eq!(sender.push(Message::Piece(1), vec![1]), PushOutcome::Waits);
        }
        let all = all(&mut backlog);
        assert_eq!(all.len(), IN_ORDER);
        assert!(all.iter().enumerate().all(|(at, it)| it.0 == Message::Piece(u8::try_from(at % 2).unwrap())));
        assert_eq!(all.iter().map(|it| it.1.len()).sum::<usize>(), 20 * IN_ORDER);
    }

    #[test]
    fn messages_without_bytes_retain_their_position_and_are_counted() {
        let (sender, mut backlog) = backlog(3);
        for (message, bytes) in [(Message::Piece(0), vec![1]), (Message::Bare, vec![]), (Message::Piece(0), vec![2])] {
            assert_eq!(sender.push(message, bytes), PushOutcome::Waits);
        }
        assert_eq!(sender.push(Message::Bare, vec![]), PushOutcome::Full);
        let expected = [(Message::Piece(0), vec![1]), (Message::Bare, vec![]), (Message::Piece(0), vec![2])];
        assert_eq!(all(&mut backlog), expected);
        assert_eq!(sender.push(Message::Bare, vec![]), PushOutcome::Waits);
        drop(backlog);
        assert_eq!(sender.push(Message::Bare, vec![]), PushOutcome::Closed);
    }

    #[test]
    fn the_receiver_is_woken_by_a_message_and_by_the_end() {
        let (sender, mut backlog) = backlog(1);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(backlog.recv()).poll(&mut cx).is_pending());
        sender.push(Message::Bare, vec![]);
        assert_eq!(pin!(backlog.recv()).poll(&mut cx), Poll::Ready(Some((Message::Bare, vec![]))));
        drop(sender);
        assert_eq!(pin!(backlog.recv()).poll(&mut cx), Poll::Ready(None));
    }
}
