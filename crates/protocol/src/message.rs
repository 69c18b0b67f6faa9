//! The messages that each side sends on a channel.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::ErrorCode;
use super::mux::{Continue, Continues};
use super::{RpcError, Stream, TerminalSize};

/// A message of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HostMessage {
    /// Opens a channel for a call. Payload: its [encoded](crate::body) request, or the beginning of it.
    Open {
        /// [`Call::NAME`](crate::call::Call::NAME); the guest replies to an unknown one with [`ErrorCode::Unsupported`].
        call: String,
        /// Bytes of the request, here and in [`HostMessage::PayloadChunk`].
        bytes: u32,
    },
    /// Payload: the next part of the request.
    PayloadChunk,
    /// Payload: input of the command, content of the file, or bytes of the tunnel.
    Data {
        /// Whether it is the last data.
        last: bool,
    },
    /// Allows this many more bytes of output, data and reply.
    WindowUpdate(u64),
    /// Ends the command of this channel, with its tree; its reply follows.
    Cancel,
    /// The terminal has a new size.
    Resize(TerminalSize),
    /// Closes this channel, for which no caller waits any more. A foreground command is ended; a job continues. The number is
    /// free once the guest has sent the channel's last message.
    CloseChannel,
}

/// A message of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestMessage {
    /// Allows this many more bytes of data.
    WindowUpdate(u64),
    /// Precedes output or data, once. Payload: the encoded [`Call::Event`](crate::call::Call::Event).
    Event,
    /// Payload: output of the command. Between two pieces there may be a gap, with [`OutputMode::Ends`](crate::OutputMode::Ends).
    Output {
        /// The stream.
        stream: Stream,
        /// Bytes of that stream before it.
        offset: u64,
    },
    /// Payload: content of a file, or bytes of the tunnel.
    Data {
        /// Whether it is the last data.
        last: bool,
    },
    /// Payload: the encoded [`Call::Reply`](crate::call::Call::Reply), or the first [`CHUNK`](crate::CHUNK) of it. The channel ends with its last byte.
    Reply {
        /// Bytes of the reply, here and in [`GuestMessage::PayloadChunk`].
        bytes: u32,
    },
    /// Payload: the next part of the reply, which uses the window.
    PayloadChunk,
    /// The error of the channel, and its last message; on channel 0 that of the connection: how the host violated the protocol.
    Failed(RpcError),
}

impl Continues for HostMessage {
    fn is_only_bytes(&self) -> bool {
        matches!(self, Self::Data { last: false } | Self::PayloadChunk)
    }

    fn join(&mut self, bytes: usize, next: &Self) -> Continue {
        match (self, next) {
            (Self::Data { last: before @ false }, Self::Data { last }) if bytes > 0 => *before = *last,
            (Self::PayloadChunk, Self::PayloadChunk) => {}
            // Only the latest size counts.
            (Self::Resize(before), Self::Resize(size)) => *before = *size,
            _ => return Continue::No,
        }
        Continue::Joined
    }
}

impl Continues for GuestMessage {
    fn is_only_bytes(&self) -> bool {
        matches!(self, Self::Output { .. } | Self::Data { last: false } | Self::PayloadChunk)
    }

    fn join(&mut self, bytes: usize, next: &Self) -> Continue {
        match (self, next) {
            (Self::Output { stream, offset }, Self::Output { stream: same, offset: next }) => {
                match (stream == same, offset.checked_add(bytes as u64) == Some(*next)) {
                    (false, _) => return Continue::OtherStream,
                    (true, true) => {}
                    (true, false) => return Continue::No,
                }
            }
            (Self::Data { last: before @ false }, Self::Data { last }) => *before = *last,
            (Self::PayloadChunk, Self::PayloadChunk) => {}
            _ => return Continue::No,
        }
        Continue::Joined
    }
}
