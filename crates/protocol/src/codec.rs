//! Frames on a byte stream: lengths first, checked before anything is allocated. Pure: each end reads and writes by itself.
//!
//! `u32` bytes that follow the first twelve · `u32` bytes of header · `u32` channel · header · payload. All numbers are
//! big-endian. The header of a [greeting](FirstMessage) is JSON, those of what follows are [binary](crate::body).

use std::io;

use crate::body::{self, DecodeError};
use crate::hello::FirstMessage;
use crate::{ErrorCode, GuestMessage, HostMessage, MAX_HEADER, MAX_PAYLOAD, RpcError};

/// Bytes that a frame begins with: its lengths and its channel.
pub const PRELUDE: usize = 12;

/// Something that is said on a channel.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame<T> {
    /// Which channel.
    pub channel: u32,
    /// What is said.
    pub head: T,
    /// Bytes that go with it.
    pub payload: Vec<u8>,
}

/// What no frame is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The other side ended in the middle of a frame, or the stream failed.
    #[error("the connection broke off")]
    Io(#[from] io::Error),
    /// A length above its limit, or a header that is longer than its frame.
    #[error("a frame of {frame} bytes with a header of {header} bytes")]
    Length {
        /// Bytes of header and payload.
        frame: usize,
        /// Bytes of header.
        header: usize,
    },
    /// The header is not what it should be.
    #[error("a header that is none")]
    Header(#[source] DecodeError),
    /// The greeting is not what it should be.
    #[error("a greeting that is none")]
    FirstMessage(#[source] serde_json::Error),
    /// The other side does what the protocol does not allow.
    #[error("{0}")]
    Protocol(String),
}

impl<T> Frame<T> {
    /// Something without a payload.
    pub fn new(channel: u32, head: T) -> Self {
        Self { channel, head, payload: Vec::new() }
    }
}

/// The header of a frame.
pub trait Head: Sized {
    /// Appends its bytes.
    fn append_to(&self, bytes: Vec<u8>) -> Vec<u8>;

    /// Reads it.
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
    /// When header or payload are longer than a frame takes, which is a fault of the sender.
    pub fn write_to(&self, bytes: &mut Vec<u8>) {
        self.try_write_to(bytes).expect("a frame within its limits");
    }

    /// Appends the frame's bytes, or nothing.
    ///
    /// # Errors
    /// [`Error::Length`] when header or payload are longer than a frame takes.
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
    /// Appends the frame's bytes. In place of one that is too long it says so: what an image or a caller put into an
    /// answer must end that channel only.
    pub fn say_to(&self, bytes: &mut Vec<u8>) {
        if let Err(err) = self.try_write_to(bytes) {
            let fault = RpcError::new(ErrorCode::Io, format!("the answer is no frame: {err}"));
            Frame::new(self.channel, GuestMessage::Failed(fault)).write_to(bytes);
        }
    }
}

/// The lengths that a frame begins with, within their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prelude {
    /// Bytes of the header, which follows.
    pub header: usize,
    /// Bytes of the payload, which follows the header.
    pub payload: usize,
    /// Which channel.
    pub channel: u32,
}

impl Prelude {
    /// Reads the first bytes of a frame.
    ///
    /// # Errors
    /// [`Error::Length`] for what is beyond a limit.
    pub fn parse(bytes: [u8; PRELUDE]) -> Result<Self, Error> {
        let number = |at: usize| u32::from_be_bytes(bytes[4 * at..][..4].try_into().expect("four bytes"));
        let (frame, header, channel) = (number(0) as usize, number(1) as usize, number(2));
        if header > MAX_HEADER || header > frame || frame - header > MAX_PAYLOAD {
            return Err(Error::Length { frame, header });
        }
        Ok(Self { header, payload: frame - header, channel })
    }

    /// The frame that has these lengths.
    ///
    /// # Errors
    /// [`Error::Header`], [`Error::FirstMessage`]
    pub fn frame<T: Head>(self, head: &[u8], payload: Vec<u8>) -> Result<Frame<T>, Error> {
        Ok(Frame { channel: self.channel, head: T::from_bytes(head)?, payload })
    }
}

/// Takes the next frame from bytes; `None` when it is not whole, and nothing was taken.
///
/// # Errors
/// [`Error`]; nothing that comes after it can be read.
pub fn take<T: Head>(bytes: &mut &[u8]) -> Result<Option<Frame<T>>, Error> {
    let Some((prelude, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let prelude = Prelude::parse(*prelude)?;
    let Some((head, rest)) = rest.split_at_checked(prelude.header) else { return Ok(None) };
    let Some((payload, rest)) = rest.split_at_checked(prelude.payload) else { return Ok(None) };
    let frame = prelude.frame(head, payload.to_vec())?;
    *bytes = rest;
    Ok(Some(frame))
}

/// The parts of a list, each ended by a NUL.
///
/// # Errors
/// [`ErrorCode::Invalid`] when the last one has no end.
pub fn split_nul(bytes: &[u8]) -> Result<Vec<Vec<u8>>, RpcError> {
    match bytes.split_last() {
        None => Ok(Vec::new()),
        Some((0, bytes)) => Ok(bytes.split(|it| *it == 0).map(<[u8]>::to_vec).collect()),
        Some(_) => Err(RpcError::new(ErrorCode::Invalid, "the last word has no end")),
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
    fn frames_follow_each_other() {
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
    fn an_answer_that_is_too_long_says_so_and_what_follows_is_heard() {
        let mut fault = RpcError::new(ErrorCode::Denied, "é".repeat(5000));
        assert_eq!(fault.message.len(), 4096);
        fault.about.insert("path".into(), "x".repeat(MAX_HEADER));
        let long = Frame { channel: 4, head: GuestMessage::Data { last: true }, payload: vec![0; MAX_PAYLOAD + 1] };
        let mut bytes = Vec::new();
        for frame in [Frame::new(3, GuestMessage::Failed(fault)), long, Frame::new(5, GuestMessage::WindowUpdate(1))] {
            frame.say_to(&mut bytes);
        }
        let frames = all::<GuestMessage>(&bytes).unwrap();
        assert!(
            frames[..2].iter().all(|it| matches!(&it.head, GuestMessage::Failed(fault) if fault.code == ErrorCode::Io))
        );
        assert_eq!(frames.iter().map(|it| it.channel).collect::<Vec<_>>(), [3, 4, 5]);
    }

    #[test]
    fn a_header_that_is_no_message_is_an_error() {
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
        fn a_frame_cut_anywhere_is_none(payload in proptest::collection::vec(any::<u8>(), 0..50), cut in 1usize..60) {
            let mut bytes = Vec::new();
            Frame { channel: 1, head: HostMessage::Data { last: true }, payload }.write_to(&mut bytes);
            let cut = cut.min(bytes.len() - 1);
            let mut rest = &bytes[..cut];
            prop_assert!(matches!(take::<HostMessage>(&mut rest), Ok(None)));
            prop_assert_eq!(rest.len(), cut);
        }
    }
}
