//! Channels and windows of a connection: one state machine for both ends, without I/O.
//!
//! The host [opens](Mux::open) and numbers channels, the guest [accepts](Mux::accept) them. Each end counts the bytes of data
//! that it may send and receive on a channel, and reports a peer that exceeds its limits as a [`Violation`], which ends the
//! connection.
//!
//! **Invariant:** the bytes queued on a channel do not exceed a window plus the announced request.

mod backlog;

use std::collections::{BTreeSet, HashMap};

pub use self::backlog::{Backlog, BacklogSender, Continue, Continues, PushOutcome, backlog};
use crate::{MAX_CHANNELS, WINDOW};

/// Least credit to return, so that single bytes do not cause one window update each.
const MIN_CREDIT: u64 = WINDOW / 4;

/// How a peer violated the rules of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The guest used a channel that is not open.
    #[error("a message on channel {0}, which is not open")]
    NotOpen(u32),
    /// The host opened a channel that is open.
    #[error("channel {0}, which is open, was opened again")]
    Reopened(u32),
    /// The host opened more channels than allowed.
    #[error("too many channels")]
    TooManyChannels,
    /// More data than the window allows.
    #[error("more data on channel {0} than its window allows")]
    Window(u32),
    /// More credit than was used.
    #[error("more credit on channel {0} than was used")]
    Credit(u32),
    /// More bytes than the opening announced.
    #[error("more bytes on channel {0} than were announced")]
    Announced(u32),
    /// Data after its end, or on a channel without data.
    #[error("data on channel {0} after its end, or without a data stream")]
    DataEnded(u32),
    /// Bytes in a message that must have none.
    #[error("bytes on channel {0} with a message that must have none")]
    Bytes(u32),
    /// Too many queued messages.
    #[error("too many messages wait on channel {0}")]
    Backlog(u32),
}

/// The part of a received frame in its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A message without bytes.
    Message,
    /// Bytes that the opening announced.
    Chunk,
    /// Bytes that use the window.
    Data {
        /// Whether it is the last data.
        last: bool,
    },
    /// Allows sending this many more bytes of data.
    WindowUpdate(u64),
}

/// How to handle a received frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivery<'a, T> {
    /// Deliver it to this channel.
    Deliver(&'a mut T),
    /// This channel may send more data.
    Credit(&'a mut T),
    /// Discard it: its channel has ended or was closed.
    Discard,
}

/// The announcement in the opening of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Bytes in the opening frame and in chunks.
    pub announced: u64,
    /// Bytes of these in the opening frame.
    pub first: u64,
    /// Whether data may follow.
    pub takes_data: bool,
}

#[derive(Debug)]
struct ChannelWindows<T> {
    /// Bytes of data that the peer may send.
    receive_window: u64,
    /// Bytes of data that were consumed and for which the peer has no credit yet.
    pending_credit: u64,
    /// Announced bytes that were not received yet.
    announced: u64,
    /// Whether the last data was received.
    data_ended: bool,
    /// Whether this end discards further bytes.
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

/// All channels of one end of a connection. `T` is that end's state of a channel.
#[derive(Debug)]
pub struct Mux<T> {
    side: Side,
    channels: HashMap<u32, ChannelWindows<T>>,
    /// The number of the latest channel.
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

    /// Opens a channel; `None` if the limit is reached.
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

    /// Accepts a channel that the host opens. The host may learn of the end of a channel before the guest has removed it, so the
    /// guest accepts twice as many.
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
    /// How the peer violated the rules.
    pub fn receive(&mut self, number: u32, part: Part, bytes: u64) -> Result<Delivery<'_, T>, Violation> {
        let Some(channel) = self.channels.get_mut(&number) else {
            return match self.side {
                Side::Host => Err(Violation::NotOpen(number)),
                // The host sends until it receives the last message.
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

    /// Counts received data that was consumed. Returns whether its channel has enough credit to be returned.
    pub fn release(&mut self, number: u32, bytes: u64) -> bool {
        let Some(channel) = self.channels.get_mut(&number) else { return false };
        channel.pending_credit = (channel.pending_credit + bytes).min(WINDOW - channel.receive_window);
        channel.pending_credit >= MIN_CREDIT && self.due.insert(number)
    }

    /// Takes the credit of a channel, to be sent to the peer.
    pub fn take_credit(&mut self, number: u32) -> u64 {
        self.due.remove(&number);
        let Some(channel) = self.channels.get_mut(&number) else { return 0 };
        channel.receive_window += channel.pending_credit;
        std::mem::take(&mut channel.pending_credit)
    }

    /// Takes the credit of all channels with enough of it, to be sent to the peer.
    pub fn take_due_credit(&mut self) -> Vec<(u32, u64)> {
        let due = std::mem::take(&mut self.due);
        due.into_iter().map(|number| (number, self.take_credit(number))).filter(|(_, credit)| *credit > 0).collect()
    }

    /// Whether a channel has enough credit to be returned.
    #[must_use]
    pub fn has_due_credit(&self) -> bool {
        !self.due.is_empty()
    }

    /// Reserves window for data: all of `most`, or what is left of it but no less than `least`. Returns 0 if less is left, `None`
    /// if the channel is not open.
    pub fn reserve(&mut self, number: u32, least: u64, most: u64) -> Option<u64> {
        let channel = self.channels.get_mut(&number)?;
        let bytes = channel.send_window.min(most);
        if bytes < least {
            return Some(0);
        }
        channel.send_window -= bytes;
        Some(bytes)
    }

    /// Returns unused window.
    pub fn unreserve(&mut self, number: u32, bytes: u64) {
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.send_window = (channel.send_window + bytes).min(WINDOW);
        }
    }

    /// Whether the peer has consumed all data that was sent on an open channel.
    #[must_use]
    pub fn is_all_taken(&self, number: u32) -> bool {
        self.channels.get(&number).is_some_and(|it| it.send_window == WINDOW)
    }

    /// Closes a channel for receiving: further bytes are discarded and their credit returned, so that the peer can end it.
    pub fn close(&mut self, number: u32) {
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.closed = true;
            self.release(number, WINDOW);
        }
    }

    /// Removes a channel after its last message.
    pub fn end(&mut self, number: u32) -> Option<T> {
        self.due.remove(&number);
        self.channels.remove(&number).map(|it| it.owner)
    }

    /// Removes all channels when the connection is closed.
    pub fn end_all(&mut self) -> impl Iterator<Item = T> {
        self.due.clear();
        std::mem::take(&mut self.channels).into_values().map(|it| it.owner)
    }

    /// The states of all open channels.
    pub fn owners_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.channels.values_mut().map(|it| &mut it.owner)
    }

    /// The state of an open channel.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.channels.get_mut(&number).map(|it| &mut it.owner)
    }

    /// Whether a channel is open.
    #[must_use]
    pub fn is_open(&self, number: u32) -> bool {
        self.channels.contains_key(&number)
    }
}
