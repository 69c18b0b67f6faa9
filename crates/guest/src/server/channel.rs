//! One channel of a connection: what is sent on it, and what is received.

mod direct;
mod inbox;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Semaphore, mpsc};

pub(crate) use self::direct::Direct;
pub(crate) use self::inbox::{Inbox, Pushed, Sender, inbox};
use crate::protocol::{CHUNK, CallReply, ErrorCode, GuestMessage, Request, RpcError, WINDOW};
use crate::server::codec::Frame;
use crate::server::quota::Quota;

/// Bytes of data that the caller sent on a channel and has no room for again yet.
#[derive(Debug, Default)]
pub(crate) struct Window(AtomicU64);

impl Window {
    /// Counts bytes that were received; `false` when they are more than a window has.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        self.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) <= WINDOW
    }

    fn give_back(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The last word of a channel, which only one of two may say: the thread that does what was asked, and the task that the
/// caller leaves meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastWord(Arc<AtomicBool>);

impl LastWord {
    /// Whether the caller is the one.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }
}

/// A channel's way out.
#[derive(Clone, Debug)]
pub(crate) struct ReplySender {
    pub(crate) channel: u32,
    pub(crate) says: mpsc::Sender<Frame<GuestMessage>>,
    /// The connection's socket, for a thread that answers by itself.
    pub(crate) direct: Arc<Direct>,
    /// Bytes of data that the host has room for.
    pub(crate) room: Arc<Semaphore>,
    /// Bytes of data that were received on the channel.
    pub(crate) window: Arc<Window>,
    /// What the connection may make this guest hold.
    pub(crate) quota: Quota,
}

impl ReplySender {
    /// Whether anybody is there to hear it.
    pub(crate) async fn say(&self, head: GuestMessage) -> bool {
        self.say_with(head, Vec::new()).await
    }

    /// The same with bytes that need no room: answers.
    pub(crate) async fn say_with(&self, head: GuestMessage, payload: Vec<u8>) -> bool {
        self.says.send(Frame { channel: self.channel, head, payload }).await.is_ok()
    }

    /// The same with data, when the host has room for it.
    pub(crate) async fn say_data(&self, head: GuestMessage, payload: Vec<u8>) -> bool {
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        let room = tokio::select! {
            room = self.room.acquire_many(bytes) => room,
            () = self.says.closed() => return false,
        };
        let Ok(room) = room else { return false };
        room.forget();
        self.say_with(head, payload).await
    }

    /// An answer with a content of any length, or what came in its way.
    pub(crate) async fn say_whole(&self, told: Result<(CallReply, Vec<u8>), RpcError>) {
        let (answer, content) = match told {
            Ok(told) => told,
            Err(fault) => return self.say_result(Err(fault)).await,
        };
        // A caller that gives no room for it makes it wait here.
        // A short answer is within what the channel reserved already, so a caller that changed something gets its answer.
        let held = (content.len() > CHUNK).then(|| self.quota.reserve(content.len()));
        if matches!(held, Some(None)) {
            return self.say_result(Err(busy())).await;
        }
        if self.say(GuestMessage::Answer(answer)).await {
            let pieces = content.len().div_ceil(CHUNK);
            for (index, piece) in content.chunks(CHUNK).enumerate() {
                if !self.say_data(GuestMessage::Data { last: index + 1 == pieces }, piece.to_vec()).await {
                    return;
                }
            }
        }
    }

    /// The same without waiting, from any thread, where the answer is short and `claim` allows it. `false`: nothing was
    /// said, and [`say_whole`](Self::say_whole) has to.
    pub(crate) fn say_at_once(&self, answer: CallReply, content: &[u8], claim: impl FnOnce() -> bool) -> bool {
        if content.is_empty() || content.len() > CHUNK {
            return false;
        }
        let room = u32::try_from(content.len()).map(|bytes| self.room.try_acquire_many(bytes));
        let Ok(Ok(room)) = room else { return false };
        let (channel, mut bytes) = (self.channel, Vec::with_capacity(content.len() + 128));
        let data = Frame { channel, head: GuestMessage::Data { last: true }, payload: content.to_vec() };
        let framed = Frame::new(channel, GuestMessage::Answer(answer)).try_write_to(&mut bytes);
        let said = framed.and_then(|()| data.try_write_to(&mut bytes)).is_ok() && self.direct.write(&bytes, claim);
        if said {
            room.forget();
        }
        said
    }

    /// Gives the caller room for data that was taken.
    pub(crate) async fn credit(&self, bytes: usize) -> bool {
        self.window.give_back(bytes as u64);
        self.say(GuestMessage::Credit(bytes as u64)).await
    }

    /// Ends the channel with a fault or an answer.
    pub(crate) async fn say_result(&self, result: Result<(GuestMessage, Vec<u8>), RpcError>) {
        match result {
            Ok((head, payload)) => self.say_with(head, payload).await,
            Err(fault) => self.say(GuestMessage::Failed(fault)).await,
        };
    }
}

/// The connection's quota is used up.
pub(crate) fn busy() -> RpcError {
    RpcError::new(
        ErrorCode::Busy,
        "the guest holds as many bytes of other calls as it may; ask again when some have ended",
    )
}

/// Waits until the caller leaves the channel.
pub(crate) async fn left(inbox: &mut Inbox) -> RpcError {
    while let Some(frame) = inbox.recv().await {
        if matches!(frame, Frame { head: Request::Leave, .. }) {
            break;
        }
    }
    RpcError::new(ErrorCode::Invalid, "the channel was left")
}
