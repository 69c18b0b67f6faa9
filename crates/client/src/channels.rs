//! What is under way on one connection, and what the guest may say next. Pure: bytes come and go elsewhere.
//!
//! Everything from the guest is held against what was asked for and against the room it was given. Whatever does not fit
//! is a [`ProtocolViolation`] and ends the connection, so memory is bounded by our own numbers.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coracle_protocol::codec::Frame;
use coracle_protocol::{CallReply, GuestMessage, MAX_UNKNOWN, Request, Stream, WINDOW};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::incoming::{IncomingReceiver, IncomingSender, inbox};

/// Room is given back in pieces of at least that size, so that a flood of single bytes is not answered byte by byte.
const GIVE_BACK: u64 = WINDOW / 4;

/// Bytes that are written at once.
const BATCH: usize = 256 << 10;

/// Why a guest is not listened to any longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtocolViolation {
    #[error("the guest spoke on channel {0}, which is not open")]
    NoChannel(u32),
    #[error("the guest said something on channel {0} that nobody asked for")]
    Unasked(u32),
    #[error("the guest sent more on channel {0} than it had room for")]
    NoRoom(u32),
    #[error("the guest gave back more room on channel {0} than was used")]
    RoomBack(u32),
    #[error("the guest sent a part of an output on channel {0} twice")]
    Offset(u32),
    #[error("the guest said more on channel {0} than may wait there")]
    Waiting(u32),
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
    Outlet {
        /// Its bytes came to their end.
        heard: bool,
    },
}

/// One channel, as its caller sees it.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) number: u32,
    pub(crate) heard: IncomingReceiver,
    /// Bytes that may be sent.
    pub(crate) room: Arc<Semaphore>,
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
    /// None when nobody waits any more. `room` bounds the bytes in it.
    heard: Option<IncomingSender>,
    /// Bytes that the guest may send.
    room: u64,
    /// Bytes that were taken and not yet given back.
    owed: u64,
    /// Bytes that we may send.
    give: Arc<Semaphore>,
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
#[derive(Debug, Default)]
pub(crate) struct Channels {
    slots: HashMap<u32, ChannelState>,
    last: u32,
    queue: VecDeque<Waiting>,
    /// Channels that have room to give back.
    owing: BTreeSet<u32>,
    unknown: usize,
    /// Why the connection is over.
    pub(crate) over: Option<String>,
}

impl Channels {
    /// Opens a channel with a first frame, which holds a place of the queue.
    pub(crate) fn open(
        &mut self,
        ask: Request,
        payload: Vec<u8>,
        talk: ReplyShape,
        permit: OwnedSemaphorePermit,
    ) -> Opened {
        let number = self.free_number();
        let (tell, heard) = inbox();
        let give = Arc::new(Semaphore::new(usize::try_from(WINDOW).expect("a window fits")));
        let (sent, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let slot = ChannelState {
            talk,
            begun: false,
            heard: Some(tell),
            room: WINDOW,
            owed: 0,
            give: Arc::clone(&give),
            ended: Arc::clone(&ended),
            _permit: permit,
        };
        self.slots.insert(number, slot);
        let frame = Frame { channel: number, head: ask, payload };
        self.queue.push_back(Waiting { frame, counted: true, opens: Some(Arc::clone(&sent)) });
        Opened { number, heard, room: give, sent, ended }
    }

    /// Channels are at most 256, so a free one is near.
    fn free_number(&mut self) -> u32 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.slots.contains_key(&self.last) {
                return self.last;
            }
        }
    }

    /// Queues a frame; `false` when the guest has said the channel's last word.
    pub(crate) fn push(&mut self, channel: u32, head: Request, payload: Vec<u8>, counted: bool) -> bool {
        let open = self.slots.contains_key(&channel);
        if open {
            self.queue.push_back(Waiting { frame: Frame { channel, head, payload }, counted, opens: None });
        }
        open
    }

    /// Gives back room for bytes that were taken. Whether there is enough of it to be written.
    pub(crate) fn release(&mut self, channel: u32, bytes: u64) -> bool {
        let Some(slot) = self.slots.get_mut(&channel) else { return false };
        slot.owed = (slot.owed + bytes).min(WINDOW - slot.room);
        slot.owed >= GIVE_BACK && self.owing.insert(channel)
    }

    /// Nobody waits for a channel any more. What still comes is let go, and its room given back, so that it can end.
    /// Whether there is something to write.
    pub(crate) fn leave(&mut self, channel: u32) -> bool {
        let Some(slot) = self.slots.get_mut(&channel) else { return false };
        slot.heard = None;
        slot.owed = WINDOW - slot.room;
        if slot.owed >= GIVE_BACK {
            self.owing.insert(channel);
        }
        self.push(channel, Request::Leave, Vec::new(), false)
    }

    /// Takes what the guest said. Whether there is something to write.
    pub(crate) fn hear(&mut self, frame: Frame<GuestMessage>) -> Result<bool, ProtocolViolation> {
        let Frame { channel, head, payload } = frame;
        if head == GuestMessage::Unknown {
            self.unknown += 1;
            if self.unknown >= MAX_UNKNOWN {
                return Err(ProtocolViolation::Unknown);
            }
            // It may have been the last word of a later version, so its call is not left waiting for another.
            return match self.slots.get_mut(&channel).and_then(|it| it.heard.as_ref()) {
                Some(heard) if !heard.put(GuestMessage::Unknown, Vec::new()) => {
                    Err(ProtocolViolation::Waiting(channel))
                }
                _ => Ok(false),
            };
        }
        if let (0, GuestMessage::Failed(fault)) = (channel, &head) {
            return Err(ProtocolViolation::Ended(fault.message.clone()));
        }
        let slot = self.slots.get_mut(&channel).ok_or(ProtocolViolation::NoChannel(channel))?;
        let last = slot.admit(channel, &head, payload.len() as u64)?;
        let bytes =
            if matches!(head, GuestMessage::Out { .. } | GuestMessage::Data { .. }) { payload.len() as u64 } else { 0 };
        let mut owed = false;
        match &slot.heard {
            _ if matches!(head, GuestMessage::Credit(_)) => {}
            // Pieces without a byte use no room, so nothing would bound how many wait.
            Some(_)
                if !last
                    && bytes == 0
                    && matches!(head, GuestMessage::Out { .. } | GuestMessage::Data { last: false }) => {}
            Some(heard) if heard.put(head, payload) => {}
            Some(_) => return Err(ProtocolViolation::Waiting(channel)),
            None => owed = self.release(channel, bytes),
        }
        if last && let Some((_, slot)) = self.slots.remove_entry(&channel) {
            slot.ended.store(true, Ordering::Relaxed);
            slot.give.close();
        }
        Ok(owed)
    }

    /// Appends what waits to the bytes to write, as far as one write takes it.
    pub(crate) fn batch(&mut self, bytes: &mut Vec<u8>) -> WriteBatch {
        for channel in mem::take(&mut self.owing) {
            if let Some(slot) = self.slots.get_mut(&channel) {
                // The guest has the room from now on and not before: one that does not read gets none.
                let owed = mem::take(&mut slot.owed);
                slot.room += owed;
                Frame::new(channel, Request::Credit(owed)).write_to(bytes);
            }
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

    /// The connection is over, and everybody who waits on a channel is woken.
    pub(crate) fn end(&mut self, reason: &str) {
        self.over.get_or_insert_with(|| reason.to_owned());
        self.queue.clear();
        for (_, slot) in self.slots.drain() {
            slot.give.close();
        }
    }
}

impl ChannelState {
    /// Whether it is the channel's last word.
    fn admit(&mut self, channel: u32, say: &GuestMessage, bytes: u64) -> Result<bool, ProtocolViolation> {
        match (self.talk, say) {
            (_, GuestMessage::Failed(_)) if bytes == 0 => Ok(true),
            (_, GuestMessage::Credit(room)) if bytes == 0 => self.give(channel, *room).map(|()| false),
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
                self.charge(channel, bytes).map(|()| false)
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
                self.charge(channel, bytes).map(|()| *last)
            }
            (ReplyShape::Outlet { .. }, GuestMessage::Answer(CallReply::Done)) if bytes == 0 => {
                Ok(mem::replace(&mut self.begun, true))
            }
            (ReplyShape::Outlet { heard: false }, GuestMessage::Data { last }) if self.begun => {
                self.talk = ReplyShape::Outlet { heard: *last };
                self.charge(channel, bytes).map(|()| false)
            }
            _ => Err(ProtocolViolation::Unasked(channel)),
        }
    }

    fn charge(&mut self, channel: u32, bytes: u64) -> Result<(), ProtocolViolation> {
        self.room = self.room.checked_sub(bytes).ok_or(ProtocolViolation::NoRoom(channel))?;
        Ok(())
    }

    fn give(&self, channel: u32, room: u64) -> Result<(), ProtocolViolation> {
        let used = WINDOW.saturating_sub(self.give.available_permits() as u64);
        if room > used {
            return Err(ProtocolViolation::RoomBack(channel));
        }
        self.give.add_permits(usize::try_from(room).expect("at most a window"));
        Ok(())
    }
}
