//! The channels of one connection, and what the guest may send next. Performs no I/O.
//!
//! Every message of the guest is checked against the calls that were made and the window that was given. A message that
//! does not fit is a [`ProtocolViolation`] and ends the connection, so memory is bounded by this program's own limits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coracle_protocol::call::{Call, Streams};
use coracle_protocol::codec::Frame;
use coracle_protocol::mux::{Backlog, BacklogSender, Delivery, Mux, Part, PushOutcome, Violation, backlog};
use coracle_protocol::{CHUNK, GuestMessage, HostMessage, MAX_HEADER, Stream};
use tokio::sync::{Notify, OwnedSemaphorePermit};

/// Bytes that are written at once.
const BATCH: usize = 256 << 10;

/// Limit of queued small messages of a channel. Gaps in the output are rare, so there are never thousands of them.
const MAX_WAITING: usize = 4096;

/// A received message with its payload.
pub(crate) type Incoming = (GuestMessage, Vec<u8>);

/// How a guest violated the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolViolation {
    #[error("the guest sent {0}")]
    Mux(#[from] Violation),
    #[error("the guest sent an unexpected message on channel {0}")]
    Unexpected(u32),
    #[error("the guest ended the connection: {0}")]
    Ended(String),
}

/// What the guest may still send on a channel, according to its call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyShape {
    streams: Streams,
    /// Limit of the reply in bytes.
    reply_limit: u64,
    /// Limit of the data in bytes.
    data_limit: u64,
    /// The least offset at which each output may continue.
    offsets: [u64; 2],
    /// Whether the event was received.
    started: bool,
    /// Remaining bytes of the reply, once it has begun.
    reply_left: Option<u64>,
}

impl ReplyShape {
    /// The shape for a call.
    pub(crate) fn new<C: Call>(call: &C) -> Self {
        let (reply_limit, data_limit) = (C::REPLY_LIMIT as u64, call.data_limit());
        Self { streams: C::STREAMS, reply_limit, data_limit, offsets: [0; 2], started: false, reply_left: None }
    }

    /// The shape for a command whose output was received up to these offsets.
    pub(crate) fn from(self, offsets: [u64; 2]) -> Self {
        Self { offsets, ..self }
    }

    /// Returns the part of a message and how many of its bytes use the window; `None` if the message is not allowed.
    fn admit(&mut self, message: &GuestMessage, bytes: u64) -> Option<(Part, u64)> {
        match message {
            GuestMessage::WindowUpdate(credit) => Some((Part::WindowUpdate(*credit), bytes)),
            GuestMessage::Failed(_) => Some((Part::Message, bytes)),
            GuestMessage::PayloadChunk => {
                self.reply_left = Some(self.reply_left?.checked_sub(bytes)?);
                Some((Part::Data { last: false }, bytes))
            }
            _ if self.reply_left.is_some() => None,
            GuestMessage::Event if self.streams.has_event() && !self.started && bytes <= MAX_HEADER as u64 => {
                self.started = true;
                Some((Part::Message, 0))
            }
            GuestMessage::Output { stream, offset } if self.streams.has_output() => {
                let next = &mut self.offsets[usize::from(*stream == Stream::Stderr)];
                *next = offset.checked_add(bytes).filter(|_| offset >= next)?;
                Some((Part::Data { last: false }, bytes))
            }
            GuestMessage::Data { last } if self.streams.has_data() && self.started => {
                self.data_limit = self.data_limit.checked_sub(bytes)?;
                Some((Part::Data { last: *last }, bytes))
            }
            // A short reply is complete in its first message.
            GuestMessage::Reply { bytes: all } if bytes == u64::from(*all).min(CHUNK as u64) => {
                let all = u64::from(*all);
                self.reply_left = (all <= self.reply_limit).then_some(all - bytes);
                self.reply_left.map(|_| (Part::Message, 0))
            }
            _ => None,
        }
    }

    fn has_ended(&self) -> bool {
        self.reply_left == Some(0)
    }
}

/// A channel for its caller.
#[derive(Debug)]
pub(crate) struct OpenChannel {
    pub(crate) number: u32,
    pub(crate) received: Backlog<GuestMessage>,
    /// Notified when data may be sent, or the channel ended.
    pub(crate) writable: Arc<Notify>,
    /// Whether the opening frame, or a part of it, was written.
    pub(crate) sent: Arc<AtomicBool>,
    /// Whether the last message was received.
    pub(crate) ended: Arc<AtomicBool>,
}

#[derive(Debug)]
struct ChannelState {
    shape: ReplyShape,
    /// `None` if the connection is closed.
    received: Option<BacklogSender<GuestMessage>>,
    writable: Arc<Notify>,
    ended: Arc<AtomicBool>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct QueuedFrame {
    frame: Frame<HostMessage>,
    /// Whether it holds a permit of the queue.
    counted: bool,
    opens: Option<Arc<AtomicBool>>,
}

/// The frames of one write.
#[derive(Debug, Default)]
pub(crate) struct WriteBatch {
    /// Permits of the queue that are free again.
    pub(crate) queue_permits: usize,
    opens: Vec<Arc<AtomicBool>>,
}

impl WriteBatch {
    /// Marks the opening frames as sent, since the guest may have read them.
    pub(crate) fn mark_sent(&self) {
        self.opens.iter().for_each(|it| it.store(true, Ordering::Relaxed));
    }
}

/// All channels of a connection, and the frames to write.
#[derive(Debug)]
pub(crate) struct Channels {
    mux: Mux<ChannelState>,
    queue: VecDeque<QueuedFrame>,
    /// Why the connection is closed.
    pub(crate) over: Option<String>,
}

impl Default for Channels {
    fn default() -> Self {
        Self { mux: Mux::host(), queue: VecDeque::new(), over: None }
    }
}

impl Channels {
    /// Opens a channel with its first frame, which holds a permit of the queue. Each channel holds a permit, which limits
    /// their number.
    pub(crate) fn open(
        &mut self,
        opening: HostMessage,
        payload: Vec<u8>,
        shape: ReplyShape,
        permit: OwnedSemaphorePermit,
    ) -> OpenChannel {
        let (sender, received) = backlog(MAX_WAITING);
        let writable = Arc::<Notify>::default();
        let (sent, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let state = ChannelState {
            shape,
            received: Some(sender),
            writable: Arc::clone(&writable),
            ended: Arc::clone(&ended),
            _permit: permit,
        };
        let number = self.mux.open(state).expect("each channel holds a permit");
        let frame = Frame { channel: number, head: opening, payload };
        self.queue.push_back(QueuedFrame { frame, counted: true, opens: Some(Arc::clone(&sent)) });
        OpenChannel { number, received, writable, sent, ended }
    }

    /// Queues a frame; `false` if the guest has ended the channel.
    pub(crate) fn push(&mut self, channel: u32, head: HostMessage, payload: Vec<u8>, counted: bool) -> bool {
        let open = self.over.is_none() && self.mux.is_open(channel);
        if open {
            self.queue.push_back(QueuedFrame { frame: Frame { channel, head, payload }, counted, opens: None });
        }
        open
    }

    /// Reserves window for data, up to `most` bytes; 0 if there is none, `None` if the channel has ended.
    pub(crate) fn reserve(&mut self, channel: u32, most: u64) -> Option<u64> {
        if self.over.is_some() { None } else { self.mux.reserve(channel, 1, most) }
    }

    pub(crate) fn unreserve(&mut self, channel: u32, bytes: u64) {
        self.mux.unreserve(channel, bytes);
    }

    /// Whether the guest has consumed all data.
    pub(crate) fn is_all_taken(&self, channel: u32) -> bool {
        self.mux.is_all_taken(channel)
    }

    /// Returns credit for consumed bytes. Returns whether there is enough of it to be written.
    pub(crate) fn release(&mut self, channel: u32, bytes: u64) -> bool {
        self.mux.release(channel, bytes)
    }

    /// Closes a channel that its caller dropped. Returns whether there is something to write.
    pub(crate) fn close(&mut self, channel: u32) -> bool {
        self.mux.close(channel);
        self.push(channel, HostMessage::CloseChannel, Vec::new(), false)
    }

    /// Handles a message of the guest. Returns whether there is something to write.
    pub(crate) fn on_frame(&mut self, frame: Frame<GuestMessage>) -> Result<bool, ProtocolViolation> {
        let Frame { channel, head, payload } = frame;
        if let (0, GuestMessage::Failed(fault)) = (channel, &head) {
            return Err(ProtocolViolation::Ended(fault.message.clone()));
        }
        let bytes = payload.len() as u64;
        let state = self.mux.get_mut(channel).ok_or(Violation::NotOpen(channel))?;
        let (part, counted) = state.shape.admit(&head, bytes).ok_or(ProtocolViolation::Unexpected(channel))?;
        let last = state.shape.has_ended() || matches!(head, GuestMessage::Failed(_));
        match self.mux.receive(channel, part, counted)? {
            Delivery::Deliver(state) => {
                if let Some(PushOutcome::Full) = state.received.as_ref().map(|it| it.push(head, payload)) {
                    return Err(Violation::Backlog(channel).into());
                }
            }
            Delivery::Credit(state) => state.writable.notify_one(),
            Delivery::Discard => {}
        }
        if last && let Some(state) = self.mux.end(channel) {
            state.ended.store(true, Ordering::Relaxed);
            state.writable.notify_one();
        }
        Ok(self.mux.has_due_credit())
    }

    /// Appends queued frames to the bytes to write, up to the limit of one write.
    pub(crate) fn batch(&mut self, bytes: &mut Vec<u8>) -> WriteBatch {
        // Credit is written only with other frames in turn: a guest that does not read gets none.
        for (channel, credit) in self.mux.take_due_credit() {
            Frame::new(channel, HostMessage::WindowUpdate(credit)).write_to(bytes);
        }
        let mut batch = WriteBatch::default();
        while bytes.len() < BATCH
            && let Some(next) = self.queue.pop_front()
        {
            next.frame.write_to(bytes);
            batch.queue_permits += usize::from(next.counted);
            batch.opens.extend(next.opens);
        }
        batch
    }

    /// Closes the connection, and wakes all tasks that wait on a channel. Each channel still knows whether it was sent.
    pub(crate) fn end(&mut self, reason: &str) {
        self.over.get_or_insert_with(|| reason.to_owned());
        self.queue.clear();
        for state in self.mux.owners_mut() {
            state.received = None;
            state.writable.notify_one();
        }
    }
}
