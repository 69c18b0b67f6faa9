//! One channel of a connection: what is sent on it, and what is received.

mod direct;
mod inbox;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, mpsc};

pub(crate) use self::direct::Direct;
pub(crate) use self::inbox::{Inbox, Sender, inbox};
use crate::protocol::mux::Mux;
use crate::protocol::{CHUNK, CallReply, ErrorCode, GuestMessage, Request, RpcError};
use crate::server::codec::Frame;
use crate::server::quota::Quota;

/// All channels of a connection, as the connection and their senders share them.
#[derive(Clone, Debug)]
pub(crate) struct Channels(Arc<Mutex<Mux<ChannelState>>>);

/// What a connection keeps for a channel. Dropped with the connection.
#[derive(Debug)]
pub(crate) struct ChannelState {
    pub(crate) inbox: Sender,
    /// Woken when data may be sent, or the connection is gone.
    pub(crate) writable: Arc<Notify>,
}

impl Channels {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Mux::guest())))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Mux<ChannelState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// With the connection: what waits for window, or for something to be received, ends.
    pub(crate) fn end_all(&self) {
        self.lock().end_all().for_each(|it| it.writable.notify_one());
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
    pub(crate) channels: Channels,
    pub(crate) writable: Arc<Notify>,
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
        loop {
            match self.reserve(payload.len()) {
                None => return false,
                Some(true) => break,
                Some(false) => {}
            }
            tokio::select! {
                () = self.writable.notified() => {}
                () = self.says.closed() => return false,
            }
        }
        self.say_with(head, payload).await
    }

    /// Reserves window for data. `None` when the channel has ended.
    fn reserve(&self, bytes: usize) -> Option<bool> {
        let bytes = bytes as u64;
        let reserved = self.channels.lock().reserve(self.channel, bytes, bytes);
        reserved.map(|it| it == bytes)
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
        if self.reserve(content.len()) != Some(true) {
            return false;
        }
        let (channel, mut bytes) = (self.channel, Vec::with_capacity(content.len() + 128));
        let data = Frame { channel, head: GuestMessage::Data { last: true }, payload: content.to_vec() };
        let framed = Frame::new(channel, GuestMessage::Answer(answer)).try_write_to(&mut bytes);
        let said = framed.and_then(|()| data.try_write_to(&mut bytes)).is_ok() && self.direct.write(&bytes, claim);
        if !said {
            self.channels.lock().unreserve(channel, content.len() as u64);
        }
        said
    }

    /// Returns credit for data that was taken.
    pub(crate) async fn credit(&self, bytes: usize) -> bool {
        let credit = {
            let mut channels = self.channels.lock();
            channels.release(self.channel, bytes as u64);
            channels.take_credit(self.channel)
        };
        credit == 0 || self.say(GuestMessage::Credit(credit)).await
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
    while let Some((head, _)) = inbox.recv().await {
        if head == Request::Leave {
            break;
        }
    }
    RpcError::new(ErrorCode::Invalid, "the channel was left")
}
