//! Channels and windows of a connection: one state machine for both ends, without input or output.
//!
//! The host [opens](Mux::open) channels and numbers them, the guest [accepts](Mux::accept) them. Each end counts the bytes of
//! data that it may send and that it may receive on a channel, and reports a peer that exceeds its part as a [`Violation`],
//! which ends the connection.
//!
//! **Invariant:** on a channel no more bytes wait than a window has and its opening announced.

mod backlog;

use std::collections::{BTreeSet, HashMap};

pub use self::backlog::{Backlog, BacklogSender, Continue, Continues, PushOutcome, backlog};
use crate::{MAX_CHANNELS, WINDOW};

/// Credit is returned in pieces of at least this size, so that a flood of single bytes is not answered byte by byte.
const MIN_CREDIT: u64 = WINDOW / 4;

/// What one end does against the rules of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The guest names a channel that is not open.
    #[error("a message on channel {0}, which is not open")]
    NotOpen(u32),
    /// The host opens a channel that is open.
    #[error("channel {0}, which is open, was opened again")]
    Reopened(u32),
    /// The host opens more channels than may be open.
    #[error("too many channels")]
    TooManyChannels,
    /// More data than the window has.
    #[error("more data on channel {0} than its window has")]
    Window(u32),
    /// More credit than was used.
    #[error("more credit on channel {0} than was used")]
    Credit(u32),
    /// More bytes than the opening announced.
    #[error("more bytes on channel {0} than were announced")]
    Announced(u32),
    /// Data after its end, or where none is taken.
    #[error("data on channel {0} after its end, or where none is taken")]
    DataEnded(u32),
    /// Bytes in a message that has none.
    #[error("bytes on channel {0} with a message that has none")]
    Bytes(u32),
    /// More messages than may wait.
    #[error("too many messages wait on channel {0}")]
    Backlog(u32),
}

/// What a received frame is to its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A message without bytes.
    Message,
    /// Bytes that the opening announced.
    Chunk,
    /// Bytes that use the window.
    Data {
        /// No data follows.
        last: bool,
    },
    /// The peer may be sent so many more bytes of data.
    WindowUpdate(u64),
}

/// What becomes of a received frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivery<'a, T> {
    /// It belongs to this channel.
    Deliver(&'a mut T),
    /// This channel may send more data.
    Credit(&'a mut T),
    /// Its channel has ended or was closed, so it is dropped.
    Discard,
}

/// What the opening of a channel announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Bytes that come in the opening frame and in chunks.
    pub announced: u64,
    /// Bytes of these in the opening frame.
    pub first: u64,
    /// Data may follow.
    pub takes_data: bool,
}

#[derive(Debug)]
struct ChannelWindows<T> {
    /// Bytes of data that the peer may send.
    receive_window: u64,
    /// Bytes of data that were taken and for which the peer has no credit yet.
    pending_credit: u64,
    /// Bytes that were announced and have not come.
    announced: u64,
    /// The last data came.
    data_ended: bool,
    /// This end takes nothing more.
    closed: bool,
    /// Bytes of data that may be sent.
    send_window: u64,
    owner: T,
}

impl<T> ChannelWindows<T> {
    fn new(owner: T) -> Self {
        Self {
            receive_window: WINDOW,
            pending_credit: 0,
            announced: 0,
            data_ended: false,
            closed: false,
            send_window: WINDOW,
            owner,
        }
    }

    fn count(&mut self, number: u32, part: Part, bytes: u64) -> Result<(), Violation> {
        match part {
            Part::Message | Part::WindowUpdate(_) if bytes > 0 => return Err(Violation::Bytes(number)),
            Part::Message => {}
            Part::Chunk => {
                self.announced = self.announced.checked_sub(bytes).ok_or(Violation::Announced(number))?;
            }
            Part::Data { .. } if self.data_ended => return Err(Violation::DataEnded(number)),
            Part::Data { last } => {
                self.receive_window = self.receive_window.checked_sub(bytes).ok_or(Violation::Window(number))?;
                self.data_ended = last;
            }
            Part::WindowUpdate(credit) => {
                let window = self.send_window.checked_add(credit).filter(|it| *it <= WINDOW);
                self.send_window = window.ok_or(Violation::Credit(number))?;
            }
        }
        Ok(())
    }
}

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Host,
    Guest,
}

/// All channels of one end of a connection. `T` is what that end keeps for each.
#[derive(Debug)]
pub struct Mux<T> {
    side: Side,
    channels: HashMap<u32, ChannelWindows<T>>,
    /// The number that was given last.
    last: u32,
    /// Channels with enough credit to be returned.
    due: BTreeSet<u32>,
}

impl<T> Mux<T> {
    /// The end that opens channels.
    #[must_use]
    pub fn host() -> Self {
        Self { side: Side::Host, channels: HashMap::new(), last: 0, due: BTreeSet::new() }
    }

    /// The end that accepts them.
    #[must_use]
    pub fn guest() -> Self {
        Self { side: Side::Guest, ..Self::host() }
    }

    /// Opens a channel; `None` when as many are open as may be.
    pub fn open(&mut self, owner: T) -> Option<u32> {
        if self.channels.len() >= MAX_CHANNELS {
            return None;
        }
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.channels.contains_key(&self.last) {
                self.channels.insert(self.last, ChannelWindows::new(owner));
                return Some(self.last);
            }
        }
    }

    /// Accepts a channel that the host opens. The host may hear of the end of a channel before the guest is done with it,
    /// so the guest accepts twice as many as the host opens.
    ///
    /// # Errors
    /// [`Violation::Reopened`], [`Violation::TooManyChannels`], [`Violation::Announced`].
    pub fn accept(&mut self, number: u32, opening: Announcement, owner: T) -> Result<(), Violation> {
        if self.channels.contains_key(&number) {
            return Err(Violation::Reopened(number));
        }
        if self.channels.len() >= 2 * MAX_CHANNELS {
            return Err(Violation::TooManyChannels);
        }
        let announced = opening.announced.checked_sub(opening.first).ok_or(Violation::Announced(number))?;
        let channel = ChannelWindows { announced, data_ended: !opening.takes_data, ..ChannelWindows::new(owner) };
        self.channels.insert(number, channel);
        Ok(())
    }

    /// Counts a received frame.
    ///
    /// # Errors
    /// What the peer does against the rules.
    pub fn receive(&mut self, number: u32, part: Part, bytes: u64) -> Result<Delivery<'_, T>, Violation> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return match self.side {
                Side::Host => Err(Violation::NotOpen(number)),
                // The host sends until it hears of the end.
                Side::Guest => Ok(Delivery::Discard),
            };
        };
        if channel.closed && part == Part::Chunk {
            return Ok(Delivery::Discard);
        }
        channel.count(number, part, bytes)?;
        if channel.closed && matches!(part, Part::Data { .. }) {
            self.release(number, bytes);
        }
        let channel = self.channels.get_mut(&number).expect("it was found above");
        Ok(match part {
            Part::WindowUpdate(_) => Delivery::Credit(&mut channel.owner),
            _ if channel.closed => Delivery::Discard,
            _ => Delivery::Deliver(&mut channel.owner),
        })
    }

    /// Counts received data that was taken. Whether its channel has enough credit to be returned.
    pub fn release(&mut self, number: u32, bytes: u64) -> bool {
        let Some(channel) = self.channels.get_mut(&number) else { return false };
        channel.pending_credit = (channel.pending_credit + bytes).min(WINDOW - channel.receive_window);
        channel.pending_credit >= MIN_CREDIT && self.due.insert(number)
    }

    /// The credit of a channel, which the peer has from now on.
    pub fn take_credit(&mut self, number: u32) -> u64 {
        self.due.remove(&number);
        let Some(channel) = self.channels.get_mut(&number) else { return 0 };
        channel.receive_window += channel.pending_credit;
        std::mem::take(&mut channel.pending_credit)
    }

    /// The credit of all channels with enough to be returned, which the peer has from now on.
    pub fn take_due_credit(&mut self) -> Vec<(u32, u64)> {
        let due = std::mem::take(&mut self.due);
        due.into_iter().map(|number| (number, self.take_credit(number))).filter(|(_, credit)| *credit > 0).collect()
    }

    /// Whether a channel has enough credit to be returned.
    #[must_use]
    pub fn has_due_credit(&self) -> bool {
        !self.due.is_empty()
    }

    /// Reserves window for data to be sent: all of `most`, or what is left of it but no less than `least`. 0 when so much is
    /// not left, `None` when the channel is not open.
    pub fn reserve(&mut self, number: u32, least: u64, most: u64) -> Option<u64> {
        let channel = self.channels.get_mut(&number)?;
        let bytes = channel.send_window.min(most);
        if bytes < least {
            return Some(0);
        }
        channel.send_window -= bytes;
        Some(bytes)
    }

    /// Returns window that was reserved and not used.
    pub fn unreserve(&mut self, number: u32, bytes: u64) {
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.send_window = (channel.send_window + bytes).min(WINDOW);
        }
    }

    /// Whether the peer has taken all data that was sent on an open channel.
    #[must_use]
    pub fn is_all_taken(&self, number: u32) -> bool {
        self.channels.get(&number).is_some_and(|it| it.send_window == WINDOW)
    }

    /// Takes nothing more of a channel: what still comes is dropped and its credit returned, so that the peer can end it.
    pub fn close(&mut self, number: u32) {
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.closed = true;
            self.release(number, WINDOW);
        }
    }

    /// Ends a channel, whose last message came or was sent.
    pub fn end(&mut self, number: u32) -> Option<T> {
        self.due.remove(&number);
        self.channels.remove(&number).map(|it| it.owner)
    }

    /// Ends all channels, with the connection.
    pub fn end_all(&mut self) -> impl Iterator<Item = T> {
        self.due.clear();
        std::mem::take(&mut self.channels).into_values().map(|it| it.owner)
    }

    /// What this end keeps for all open channels.
    pub fn owners_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.channels.values_mut().map(|it| &mut it.owner)
    }

    /// What this end keeps for an open channel.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.channels.get_mut(&number).map(|it| &mut it.owner)
    }

    /// Whether a channel is open.
    #[must_use]
    pub fn is_open(&self, number: u32) -> bool {
        self.channels.contains_key(&number)
    }
}
