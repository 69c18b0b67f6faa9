//! What is under way on one connection, and what the guest may say next. Pure: bytes come and go elsewhere.
//!
//! Everything from the guest is held against what was asked for and against the room it was given. Whatever does not fit
//! is a [`ProtocolViolation`] and ends the connection, so memory is bounded by our own numbers.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coracle_protocol::codec::Frame;
use coracle_protocol::mux::{Backlog, BacklogSender, Mux, Part, Pushed, Received, Violation, backlog};
use coracle_protocol::{CallReply, GuestMessage, MAX_UNKNOWN, Request, Stream};
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
    #[error("the guest sent a part of an output on channel {0} twice")]
    Offset(u32),
    #[error("the guest sent {} frames of unknown types", MAX_UNKNOWN)]
    Unknown,
    #[error("the guest ended the connection: {0}")]
    Ended(String),
}

/// What the guest may say on a channel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReplyShape {
    /// [`GuestMessage::Begun`] and output, from these offsets on, then [`GuestMessage::End`].
    Command([u64; 2]),
    /// One answer of a kind.
    Answer {
        fits: fn(&CallReply) -> bool,
        /// Bytes that may come with it.
        payload: u64,
    },
    /// One answer of a kind, then so many bytes at most.
    Content { fits: fn(&CallReply) -> bool, most: u64 },
    /// [`CallReply::Done`] when there is a connection, then its bytes to their end, then [`CallReply::Done`] again.
    Outlet,
}

/// One channel, as its caller sees it.
#[derive(Debug)]
pub(crate) struct Opened {
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
    talk: ReplyShape,
    /// [`GuestMessage::Begun`] came, or the answer that data follows.
    begun: bool,
    /// None when the connection is over.
    heard: Option<BacklogSender<GuestMessage>>,
    writable: Arc<Notify>,
    ended: Arc<AtomicBool>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct Waiting {
    frame: Frame<Request>,
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
    queue: VecDeque<Waiting>,
    unknown: usize,
    /// Why the connection is over.
    pub(crate) over: Option<String>,
}

impl Default for Channels {
    fn default() -> Self {
        Self { mux: Mux::host(), queue: VecDeque::new(), unknown: 0, over: None }
    }
}

impl Channels {
    /// Opens a channel with a first frame, which holds a place of the queue. A permit is held by each channel, and there
    /// are no more than channels may be open.
    pub(crate) fn open(
        &mut self,
        ask: Request,
        payload: Vec<u8>,
        talk: ReplyShape,
        permit: OwnedSemaphorePermit,
    ) -> Opened {
        let (tell, heard) = backlog(MAX_WAITING);
        let writable = Arc::<Notify>::default();
        let (sent, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let state = ChannelState {
            talk,
            begun: false,
            heard: Some(tell),
            writable: Arc::clone(&writable),
            ended: Arc::clone(&ended),
            _permit: permit,
        };
        let number = self.mux.open(state).expect("each channel holds a permit");
        let frame = Frame { channel: number, head: ask, payload };
        self.queue.push_back(Waiting { frame, counted: true, opens: Some(Arc::clone(&sent)) });
        Opened { number, heard, writable, sent, ended }
    }

    /// Queues a frame; `false` when the guest has said the channel's last word.
    pub(crate) fn push(&mut self, channel: u32, head: Request, payload: Vec<u8>, counted: bool) -> bool {
        let open = self.over.is_none() && self.mux.is_open(channel);
        if open {
            self.queue.push_back(Waiting { frame: Frame { channel, head, payload }, counted, opens: None });
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

    /// Nobody waits for a channel any more. Whether there is something to write.
    pub(crate) fn leave(&mut self, channel: u32) -> bool {
        self.mux.close(channel);
        self.push(channel, Request::Leave, Vec::new(), false)
    }

    /// Takes what the guest said. Whether there is something to write.
    pub(crate) fn hear(&mut self, frame: Frame<GuestMessage>) -> Result<bool, ProtocolViolation> {
        let Frame { channel, head, payload } = frame;
        if head == GuestMessage::Unknown {
            return self.hear_unknown(channel);
        }
        if let (0, GuestMessage::Failed(fault)) = (channel, &head) {
            return Err(ProtocolViolation::Ended(fault.message.clone()));
        }
        let bytes = payload.len() as u64;
        let state = self.mux.get_mut(channel).ok_or(Violation::NotOpen(channel))?;
        let last = state.admit(channel, &head, bytes)?;
        let (part, counted) = match &head {
            GuestMessage::Credit(credit) => (Part::WindowUpdate(*credit), bytes),
            GuestMessage::Out { .. } => (Part::Data { last: false }, bytes),
            GuestMessage::Data { last } => (Part::Data { last: *last }, bytes),
            // Bytes of an answer are held to its own limit.
            _ => (Part::Message, 0),
        };
        match self.mux.receive(channel, part, counted)? {
            Received::Deliver(state) => state.deliver(channel, head, payload)?,
            Received::Credit(state) => state.writable.notify_one(),
            Received::Discard => {}
        }
        if last && let Some(state) = self.mux.end(channel) {
            state.ended.store(true, Ordering::Relaxed);
            state.writable.notify_one();
        }
        Ok(self.mux.has_due_credit())
    }

    /// It may have been the last word of a later version, so its call is not left waiting for another.
    fn hear_unknown(&mut self, channel: u32) -> Result<bool, ProtocolViolation> {
        self.unknown += 1;
        if self.unknown >= MAX_UNKNOWN {
            return Err(ProtocolViolation::Unknown);
        }
        if let Some(state) = self.mux.get_mut(channel) {
            state.deliver(channel, GuestMessage::Unknown, Vec::new())?;
        }
        Ok(false)
    }

    /// Appends what waits to the bytes to write, as far as one write takes it.
    pub(crate) fn batch(&mut self, bytes: &mut Vec<u8>) -> WriteBatch {
        // The guest has the credit from now on and not before: one that does not read gets none.
        for (channel, credit) in self.mux.take_due_credit() {
            Frame::new(channel, Request::Credit(credit)).write_to(bytes);
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

impl ChannelState {
    fn deliver(&self, channel: u32, head: GuestMessage, payload: Vec<u8>) -> Result<(), ProtocolViolation> {
        match self.heard.as_ref().map(|it| it.push(head, payload)) {
            Some(Pushed::Full) => Err(Violation::Backlog(channel).into()),
            _ => Ok(()),
        }
    }

    /// Whether it is the channel's last word.
    fn admit(&mut self, channel: u32, say: &GuestMessage, bytes: u64) -> Result<bool, ProtocolViolation> {
        match (self.talk, say) {
            (_, GuestMessage::Failed(_)) if bytes == 0 => Ok(true),
            (_, GuestMessage::Credit(_)) => Ok(false),
            (ReplyShape::Command(_), GuestMessage::Begun(_)) if !self.begun && bytes == 0 => {
                self.begun = true;
                Ok(false)
            }
            (ReplyShape::Command(mut next), GuestMessage::Out { stream, offset }) => {
                let at = &mut next[usize::from(*stream == Stream::Stderr)];
                if offset < at {
                    return Err(ProtocolViolation::Offset(channel));
                }
                *at = offset.checked_add(bytes).ok_or(ProtocolViolation::Offset(channel))?;
                self.talk = ReplyShape::Command(next);
                Ok(false)
            }
            (ReplyShape::Command(_), GuestMessage::End(_)) if bytes == 0 => Ok(true),
            (ReplyShape::Answer { fits, payload }, GuestMessage::Answer(answer))
                if fits(answer) && bytes <= payload =>
            {
                Ok(true)
            }
            (ReplyShape::Content { fits, .. }, GuestMessage::Answer(answer))
                if fits(answer) && !self.begun && bytes == 0 =>
            {
                self.begun = true;
                Ok(false)
            }
            (ReplyShape::Content { fits, most }, GuestMessage::Data { last }) if self.begun => {
                let most = most.checked_sub(bytes).ok_or(ProtocolViolation::Unasked(channel))?;
                self.talk = ReplyShape::Content { fits, most };
                Ok(*last)
            }
            (ReplyShape::Outlet, GuestMessage::Answer(CallReply::Done)) if bytes == 0 => {
                Ok(mem::replace(&mut self.begun, true))
            }
            (ReplyShape::Outlet, GuestMessage::Data { .. }) if self.begun => Ok(false),
            _ => Err(ProtocolViolation::Unasked(channel)),
        }
    }
}
