//! One channel of a connection: what is sent on it, and what is received.

mod direct;
mod inbox;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tokio::sync::{Notify, mpsc};

pub(crate) use self::direct::Direct;
pub(crate) use self::inbox::{RequestReceiver, Sender, inbox};
use crate::protocol::body::encode;
use crate::protocol::mux::Mux;
use crate::protocol::{CHUNK, ErrorCode, GuestMessage, HostMessage, RpcError};
use crate::server::codec::Frame;
use crate::server::quota::Quota;

/// All channels of a connection, shared by the connection and their senders.
#[derive(Clone, Debug)]
pub(crate) struct Channels(Arc<Mutex<Mux<ChannelState>>>);

/// The connection's state of a channel. Dropped with the connection.
#[derive(Debug)]
pub(crate) struct ChannelState {
    pub(crate) inbox: Sender,
    /// Notified when data may be sent, or the connection was closed.
    pub(crate) writable: Arc<Notify>,
}

impl Channels {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Mux::guest())))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Mux<ChannelState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all tasks that wait for window or messages, when the connection is closed.
    pub(crate) fn end_all(&self) {
        self.lock().end_all().for_each(|it| it.writable.notify_one());
    }
}

/// Sends the messages of a channel.
#[derive(Clone, Debug)]
pub(crate) struct ReplySender {
    pub(crate) channel: u32,
    pub(crate) messages: mpsc::Sender<Frame<GuestMessage>>,
    /// The connection's socket, for a thread that replies directly.
    pub(crate) direct: Arc<Direct>,
    pub(crate) channels: Channels,
    pub(crate) writable: Arc<Notify>,
    /// Limit of the bytes that the guest buffers for the connection.
    pub(crate) quota: Quota,
    /// Set when the last message is sent. Both the thread that handles the call and the task that detects a closed channel
    /// may try to send it.
    pub(crate) ended: Arc<AtomicBool>,
}

impl ReplySender {
    /// Sends a message without bytes. Returns whether the connection is open.
    pub(crate) async fn send(&self, head: GuestMessage) -> bool {
        self.send_with(head, Vec::new()).await
    }

    async fn send_with(&self, head: GuestMessage, payload: Vec<u8>) -> bool {
        self.messages.send(Frame { channel: self.channel, head, payload }).await.is_ok()
    }

    /// Sends data once the window has room for it.
    pub(crate) async fn send_data(&self, head: GuestMessage, payload: Vec<u8>) -> bool {
        loop {
            match self.reserve(payload.len()) {
                None => return false,
                Some(true) => return self.send_with(head, payload).await,
                Some(false) => {}
            }
            tokio::select! {
                () = self.writable.notified() => {}
                () = self.messages.closed() => return false,
            }
        }
    }

    /// Reserves window for data. `None` if the channel has ended.
    fn reserve(&self, bytes: usize) -> Option<bool> {
        let bytes = bytes as u64;
        let reserved = self.channels.lock().reserve(self.channel, bytes, bytes);
        reserved.map(|it| it == bytes)
    }

    /// Returns credit for data that was consumed.
    pub(crate) async fn credit(&self, bytes: usize) -> bool {
        let credit = {
            let mut channels = self.channels.lock();
            channels.release(self.channel, bytes as u64);
            channels.take_credit(self.channel)
        };
        credit == 0 || self.send(GuestMessage::WindowUpdate(credit)).await
    }

    /// Sends the event that precedes output and data.
    pub(crate) async fn send_event(&self, event: &impl Serialize) -> bool {
        self.send_with(GuestMessage::Event, encode(event)).await
    }

    /// Ends the channel with an encoded reply, unless it has ended.
    pub(crate) async fn send_reply(&self, body: &[u8]) {
        let first = body.len().min(CHUNK);
        // If the caller gives no window for the rest, it is buffered here. A short reply fits into what the channel has reserved
        // already, so a caller that changed something always gets its reply.
        let held = (body.len() > first).then(|| self.quota.reserve(body.len()));
        if matches!(held, Some(None)) {
            return self.send_failure(busy()).await;
        }
        if !self.end() {
            return;
        }
        let mut is_received = self.send_with(reply_head(body), body[..first].to_vec()).await;
        for piece in body[first..].chunks(CHUNK) {
            is_received = is_received && self.send_data(GuestMessage::PayloadChunk, piece.to_vec()).await;
        }
    }

    /// As [`send_reply`](Self::send_reply) for a short reply, without waiting and from any thread. Returns whether it was sent.
    pub(crate) fn send_reply_at_once(&self, body: &[u8]) -> bool {
        if body.len() > CHUNK {
            return false;
        }
        let mut bytes = Vec::with_capacity(body.len() + 32);
        let frame = Frame { channel: self.channel, head: reply_head(body), payload: body.to_vec() };
        frame.try_write_to(&mut bytes).is_ok() && self.direct.write(&bytes, || self.end())
    }

    /// Ends the channel with an error, unless it has ended.
    pub(crate) async fn send_failure(&self, failure: RpcError) {
        if self.end() {
            self.send(GuestMessage::Failed(failure)).await;
        }
    }

    /// Claims the right to send the last message.
    fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::Relaxed)
    }
}

fn reply_head(body: &[u8]) -> GuestMessage {
    GuestMessage::Reply { bytes: u32::try_from(body.len()).expect("a reply is within its limit") }
}

/// The error if the connection's quota is used up.
pub(crate) fn busy() -> RpcError {
    RpcError::new(
        ErrorCode::Busy,
        "the guest has reached its limit of bytes for concurrent calls; retry when some have ended",
    )
}

/// The error for a caller that closed the channel or disconnected.
pub(crate) fn closed() -> RpcError {
    RpcError::new(ErrorCode::Invalid, "the caller closed the channel")
}

/// Waits until the caller closes the channel.
pub(crate) async fn until_closed(inbox: &mut RequestReceiver) -> RpcError {
    while let Some((message, _)) = inbox.recv().await {
        if message == HostMessage::CloseChannel {
            break;
        }
    }
    closed()
}
