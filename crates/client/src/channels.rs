//! What is under way on one connection, and what the guest may say next. Pure: bytes come and go elsewhere.
//!
//! Everything from the guest is held against what was asked for and against the room it was given. Whatever does not fit
//! is a [`ProtocolViolation`] and ends the connection, so memory is bounded by our own numbers.

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

/// Small messages that wait on a channel, at most. Output leaves out a part now and then, and never thousands of times.
const MAX_WAITING: usize = 4096;

/// Something that was said, with its payload.
pub(crate) type Incoming = (GuestMessage, Vec<u8>);

/// Why a guest is not listened to any longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolViolation {
    #[error("the guest sent {0}")]
    Mux(#[from] Violation),
    #[error("the guest said something on channel {0} that nobody asked for")]
    Unasked(u32),
    #[error("the guest ended the connection: {0}")]
    Ended(String),
}

/// What the guest may still send on a channel, by its call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyShape {
    streams: Streams,
    /// Bytes that the reply may have.
    reply_limit: u64,
    /// Bytes of data that may come.
    data_limit: u64,
    /// Where each output goes on, at least.
    offsets: [u64; 2],
    /// The event came.
    started: bool,
    /// Bytes of the reply that are still to come, once it began.
    reply_left: Option<u64>,
}

impl ReplyShape {
    /// What a call gets.
    pub(crate) fn new<C: Call>(call: &C) -> Self {
        let (reply_limit, data_limit) = (C::REPLY_LIMIT as u64, call.data_limit());
        Self { streams: C::STREAMS, reply_limit, data_limit, offsets: [0; 2], started: false, reply_left: None }
    }

    /// The same for a command whose output was received so far.
    pub(crate) fn from(self, offsets: [u64; 2]) -> Self {
        Self { offsets, ..self }
    }

    /// What a message is to its channel and how many of its bytes use the window. `None` when it does not fit.
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
            // All of a short reply comes at once.
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

/// One channel, as its caller sees it.
#[derive(Debug)]
pub(crate) struct OpenChannel {
    pub(crate) number: u32,
    pub(crate) heard: Backlog<GuestMessage>,
    /// Woken when data may be sent, or the channel ended.
    pub(crate) writable: Arc<Notify>,
    /// The opening words, or a part of them, went out.
    pub(crate) sent: Arc<AtomicBool>,
    /// The last word came.
    pub(crate) ended: Arc<AtomicBool>,
}

#[derive(Debug)]
struct ChannelState {
    shape: ReplyShape,
    /// None when the connection is over.
    heard: Option<BacklogSender<GuestMessage>>,
    writable: Arc<Notify>,
    ended: Arc<AtomicBool>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct QueuedFrame {
    frame: Frame<HostMessage>,
    /// It holds one of the places of the queue.
    counted: bool,
    opens: Option<Arc<AtomicBool>>,
}

/// What one write takes with it.
#[derive(Debug, Default)]
pub(crate) struct WriteBatch {
    /// Places of the queue that are free again.
    pub(crate) places: usize,
    opens: Vec<Arc<AtomicBool>>,
}

impl WriteBatch {
    /// The guest may have read it from now on.
    pub(crate) fn went_out(&self) {
        self.opens.iter().for_each(|it| it.store(true, Ordering::Relaxed));
    }
}

/// All channels of a connection, and what waits to be written.
#[derive(Debug)]
pub(crate) struct Channels {
    mux: Mux<ChannelState>,
    queue: VecDeque<QueuedFrame>,
    /// Why the connection is over.
    pub(crate) over: Option<String>,
}

impl Default for Channels {
    fn default() -> Self {
        Self { mux: Mux::host(), queue: VecDeque::new(), over: None }
    }
}

impl Channels {
    /// Opens a channel with a first frame, which holds a place of the queue. A permit is held by each channel, and there
    /// are no more than channels may be open.
    pub(crate) fn open(
        &mut self,
        opening: HostMessage,
        payload: Vec<u8>,
        shape: ReplyShape,
        permit: OwnedSemaphorePermit,
    ) -> OpenChannel {
        let (tell, heard) = backlog(MAX_WAITING);
        let writable = Arc::<Notify>::default();
        let (sent, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let state = ChannelState {
            shape,
            heard: Some(tell),
            writable: Arc::clone(&writable),
            ended: Arc::clone(&ended),
            _permit: permit,
        };
        let number = self.mux.open(state).expect("each channel holds a permit");
        let frame = Frame { channel: number, head: opening, payload };
        self.queue.push_back(QueuedFrame { frame, counted: true, opens: Some(Arc::clone(&sent)) });
        OpenChannel { number, heard, writable, sent, ended }
    }

    /// Queues a frame; `false` when the guest has said the channel's last word.
    pub(crate) fn push(&mut self, channel: u32, head: HostMessage, payload: Vec<u8>, counted: bool) -> bool {
        let open = self.over.is_none() && self.mux.is_open(channel);
        if open {
            self.queue.push_back(QueuedFrame { frame: Frame { channel, head, payload }, counted, opens: None });
        }
        open
    }

    /// Reserves window for data, up to so many bytes; 0 when there is none, `None` when the channel has ended.
    pub(crate) fn reserve(&mut self, channel: u32, most: u64) -> Option<u64> {
        if self.over.is_some() { None } else { self.mux.reserve(channel, 1, most) }
    }

    pub(crate) fn unreserve(&mut self, channel: u32, bytes: u64) {
        self.mux.unreserve(channel, bytes);
    }

    /// Whether the guest has taken all data.
    pub(crate) fn is_all_taken(&self, channel: u32) -> bool {
        self.mux.is_all_taken(channel)
    }

    /// Returns credit for bytes that were taken. Whether there is enough of it to be written.
    pub(crate) fn release(&mut self, channel: u32, bytes: u64) -> bool {
        self.mux.release(channel, bytes)
    }

    /// Closes a channel that has no caller any more. Answers whether there is something to write.
    pub(crate) fn close(&mut self, channel: u32) -> bool {
        self.mux.close(channel);
        self.push(channel, HostMessage::CloseChannel, Vec::new(), false)
    }

    /// Takes what the guest said. Whether there is something to write.
    pub(crate) fn on_frame(&mut self, frame: Frame<GuestMessage>) -> Result<bool, ProtocolViolation> {
        let Frame { channel, head, payload } = frame;
        if let (0, GuestMessage::Failed(fault)) = (channel, &head) {
            return Err(ProtocolViolation::Ended(fault.message.clone()));
        }
        let bytes = payload.len() as u64;
        let state = self.mux.get_mut(channel).ok_or(Violation::NotOpen(channel))?;
        let (part, counted) = state.shape.admit(&head, bytes).ok_or(ProtocolViolation::Unasked(channel))?;
        let last = state.shape.has_ended() || matches!(head, GuestMessage::Failed(_));
        match self.mux.receive(channel, part, counted)? {
            Delivery::Deliver(state) => {
                if let Some(PushOutcome::Full) = state.heard.as_ref().map(|it| it.push(head, payload)) {
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

    /// Appends what waits to the bytes to write, as far as one write takes it.
    pub(crate) fn batch(&mut self, bytes: &mut Vec<u8>) -> WriteBatch {
        // The guest has the credit from now on and not before: one that does not read gets none.
        for (channel, credit) in self.mux.take_due_credit() {
            Frame::new(channel, HostMessage::WindowUpdate(credit)).write_to(bytes);
        }
        let mut batch = WriteBatch::default();
        while bytes.len() < BATCH
            && let Some(next) = self.queue.pop_front()
        {
            next.frame.write_to(bytes);
            batch.places += usize::from(next.counted);
            batch.opens.extend(next.opens);
        }
        batch
    }

    /// The connection is over, and everybody who waits on a channel is woken. How much each had sent can still be seen.
    pub(crate) fn end(&mut self, reason: &str) {
        self.over.get_or_insert_with(|| reason.to_owned());
        self.queue.clear();
        for state in self.mux.owners_mut() {
            state.heard = None;
            state.writable.notify_one();
        }
    }
}
