//! Frames on a byte stream. All lengths are checked before memory is allocated. Performs no I/O: each end reads and writes.
//!
//! A frame consists of: `u32` bytes after the first twelve · `u32` bytes of header · `u32` channel · header · payload. All
//! numbers are big-endian. The header of a [greeting](FirstMessage) is JSON, later ones are [binary](crate::body).

use std::io;

use crate::body::{self, DecodeError};
use crate::hello::FirstMessage;
use crate::{ErrorCode, GuestMessage, HostMessage, MAX_HEADER, MAX_PAYLOAD, RpcError};

/// Length of the start of a frame: its lengths and its channel.
pub const PRELUDE: usize = 12;

/// A message on a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame<T> {
    /// The channel's number.
    pub channel: u32,
    /// The message.
    pub head: T,
    /// The bytes that belong to it.
    pub payload: Vec<u8>,
}

/// Why a frame could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The stream ended in the middle of a frame, or failed.
    #[error("the connection was closed")]
    Io(#[from] io::Error),
    /// A length exceeds its limit, or the header is longer than the frame.
    #[error("invalid frame of {frame} bytes with a header of {header} bytes")]
    Length {
        /// Bytes of header and payload.
        frame: usize,
        /// Bytes of header.
        header: usize,
    },
    /// The header is invalid.
    #[error("invalid header")]
    Header(#[source] DecodeError),
    /// The greeting is invalid.
    #[error("invalid greeting")]
    FirstMessage(#[source] serde_json::Error),
    /// The peer violated the protocol.
    #[error("{0}")]
    Protocol(String),
}

impl<T> Frame<T> {
    /// A message without a payload.
    pub fn new(channel: u32, head: T) -> Self {
        Self { channel, head, payload: Vec::new() }
    }
}

/// The header of a frame.
pub trait Head: Sized {
    /// Appends the encoded header.
    fn append_to(&self, bytes: Vec<u8>) -> Vec<u8>;

    /// Decodes the header.
    ///
    /// # Errors
    /// [`Error::Header`], [`Error::FirstMessage`]
    fn from_bytes(bytes: &[u8]) -> Result<Self, Error>;
}

impl Head for FirstMessage {
    fn append_to(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        serde_json::to_writer(&mut bytes, self).expect("a greeting has string keys only");
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes).map_err(Error::FirstMessage)
    }
}

impl Head for HostMessage {
    fn append_to(&self, bytes: Vec<u8>) -> Vec<u8> {
        body::encode_to(self, bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        body::decode(bytes).map_err(Error::Header)
    }
}

impl Head for GuestMessage {
    fn append_to(&self, bytes: Vec<u8>) -> Vec<u8> {
        body::encode_to(self, bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        body::decode(bytes).map_err(Error::Header)
    }
}

impl<T: Head> Frame<T> {
    /// Appends the frame's bytes.
    ///
    /// # Panics
    /// If header or payload exceed their limits, which is a bug of the sender.
    pub fn write_to(&self, bytes: &mut Vec<u8>) {
        self.try_write_to(bytes).expect("a frame within its limits");
    }

    /// Appends the frame's bytes, or none.
    ///
    /// # Errors
    /// [`Error::Length`] if header or payload exceed their limits.
    pub fn try_write_to(&self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let begin = bytes.len();
        bytes.extend_from_slice(&[0; PRELUDE]);
        *bytes = self.head.append_to(std::mem::take(bytes));
        let header = bytes.len() - begin - PRELUDE;
        let frame = header + self.payload.len();
        if header > MAX_HEADER || self.payload.len() > MAX_PAYLOAD {
            bytes.truncate(begin);
            return Err(Error::Length { frame, header });
        }
        let numbers = [frame, header, self.channel as usize];
        for (at, number) in numbers.into_iter().enumerate() {
            let number = u32::try_from(number).expect("limits are far below");
            bytes[begin + 4 * at..][..4].copy_from_slice(&number.to_be_bytes());
        }
        bytes.extend_from_slice(&self.payload);
        Ok(())
    }
}

impl Frame<GuestMessage> {
    /// Appends the frame's bytes, or an error if it is too long: data of an image or a caller in a reply must end only that
    /// channel.
    pub fn write_or_fail(&self, bytes: &mut Vec<u8>) {
        if let Err(err) = self.try_write_to(bytes) {
            let fault = RpcError::new(ErrorCode::Io, format!("the reply does not fit into a frame: {err}"));
            Frame::new(self.channel, GuestMessage::Failed(fault)).write_to(bytes);
        }
    }
}

/// The lengths at the start of a frame, within their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prelude {
    /// Length of the header, which follows.
    pub header: usize,
    /// Length of the payload, which follows the header.
    pub payload: usize,
    /// The channel's number.
    pub channel: u32,
}

impl Prelude {
    /// Parses the first bytes of a frame.
    ///
    /// # Errors
    /// [`Error::Length`] if a length exceeds its limit.
    pub fn parse(bytes: [u8; PRELUDE]) -> Result<Self, Error> {
        let number = |at: usize| u32::from_be_bytes(bytes[4 * at..][..4].try_into().expect("four bytes"));
        let (frame, header, channel) = (number(0) as usize, number(1) as usize, number(2));
        if header > MAX_HEADER || header > frame || frame - header > MAX_PAYLOAD {
            return Err(Error::Length { frame, header });
        }
        Ok(Self { header, payload: frame - header, channel })
    }

    /// Builds the frame from its header and payload.
    ///
    /// # Errors
    /// [`Error::Header`], [`Error::FirstMessage`]
    pub fn frame<T: Head>(self, head: &[u8], payload: Vec<u8>) -> Result<Frame<T>, Error> {
        Ok(Frame { channel: self.channel, head: T::from_bytes(head)?, payload })
    }
}

/// Takes the next frame from bytes; `None` if it is incomplete, and then nothing is taken.
///
/// # Errors
/// [`Error`]; after it, no further frame can be read.
pub fn take<T: Head>(bytes: &mut &[u8]) -> Result<Option<Frame<T>>, Error> {
    let Some((prelude, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let prelude = Prelude::parse(*prelude)?;
    let Some((head, rest)) = rest.split_at_checked(prelude.header) else { return Ok(None) };
    let Some((payload, rest)) = rest.split_at_checked(prelude.payload) else { return Ok(None) };
    let frame = prelude.frame(head, payload.to_vec())?;
    *bytes = rest;
    Ok(Some(frame))
}

/// Splits a list whose parts end with a NUL.
///
/// # Errors
/// [`ErrorCode::Invalid`] if the last part has no NUL.
pub fn split_nul(bytes: &[u8]) -> Result<Vec<Vec<u8>>, RpcError> {
    match bytes.split_last() {
        None => Ok(Vec::new()),
        Some((0, bytes)) => Ok(bytes.split(|it| *it == 0).map(<[u8]>::to_vec).collect()),
        Some(_) => Err(RpcError::new(ErrorCode::Invalid, "the last part has no NUL")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Stream;

    fn all<T: Head>(mut bytes: &[u8]) -> Result<Vec<Frame<T>>, Error> {
        std::iter::from_fn(|| take(&mut bytes).transpose()).collect()
    }

    #[test]
    fn consecutive_frames_are_read() {
        let frames = [
            Frame {
                channel: 7,
                head: GuestMessage::Output { stream: Stream::Stderr, offset: 3 },
                payload: vec![0, 255],
            },
            Frame::new(8, GuestMessage::Failed(RpcError::new(ErrorCode::NoJob, "none"))),
        ];
        let mut bytes = Vec::new();
        frames.iter().for_each(|it| it.write_to(&mut bytes));
        assert_eq!(all::<GuestMessage>(&bytes).unwrap(), frames);
    }

    #[test]
    fn a_frame_that_is_too_long_becomes_an_error_and_later_frames_are_read() {
        let mut fault = RpcError::new(ErrorCode::Denied, "é".repeat(5000));
        assert_eq!(fault.message.len(), 4096);
        fault.about.insert("path".into(), "x".repeat(MAX_HEADER));
        let long = Frame { channel: 4, head: GuestMessage::Data { last: true }, payload: vec![0; MAX_PAYLOAD + 1] };
        let mut bytes = Vec::new();
        for frame in [Frame::new(3, GuestMessage::Failed(fault)), long, Frame::new(5, GuestMessage::WindowUpdate(1))] {
            frame.write_or_fail(&mut bytes);
        }
        let frames = all::<GuestMessage>(&bytes).unwrap();
        assert!(
            frames[..2].iter().all(|it| matches!(&it.head, GuestMessage::Failed(fault) if fault.code == ErrorCode::Io))
        );
        assert_eq!(frames.iter().map(|it| it.channel).collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn an_invalid_header_is_an_error() {
        for header in [&b"\xff"[..], b"", br#"{"jobs":null}"#, b"\x01\x00"] {
            let mut bytes = (header.len() as u32).to_be_bytes().repeat(2);
            bytes.extend(1u32.to_be_bytes());
            bytes.extend(header);
            assert!(matches!(all::<HostMessage>(&bytes), Err(Error::Header(_))), "{header:?}");
            assert!(matches!(all::<FirstMessage>(&bytes), Err(Error::FirstMessage(_))), "{header:?}");
        }
    }

    #[test]
    fn lengths_beyond_their_limits_are_refused_before_they_are_read() {
        let max = (MAX_HEADER + MAX_PAYLOAD) as u32;
        for (frame, header) in [(u32::MAX, 2), (max + 1, MAX_HEADER as u32), (1, 2), (max, MAX_HEADER as u32 + 1)] {
            let bytes = [frame.to_be_bytes(), header.to_be_bytes(), [0; 4]].concat();
            assert!(matches!(all::<HostMessage>(&bytes), Err(Error::Length { .. })), "{frame} {header}");
        }
    }

    proptest! {
        #[test]
        fn a_truncated_frame_is_not_taken(payload in proptest::collection::vec(any::<u8>(), 0..50), cut in 1usize..60) {
            let mut bytes = Vec::new();
            Frame { channel: 1, head: HostMessage::Data { last: true }, payload }.write_to(&mut bytes);
            let cut = cut.min(bytes.len() - 1);
            let mut rest = &bytes[..cut];
            prop_assert!(matches!(take::<HostMessage>(&mut rest), Ok(None)));
            prop_assert_eq!(rest.len(), cut);
        }
    }
}
