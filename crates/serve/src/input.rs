//! The input of a call: bytes that its client sends in frames, within the granted window.

use std::io::{self, Cursor, Read as _};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use coracle::Input;
use serde_json::json;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use crate::lines::Output;
use crate::request::RequestId;

/// Bytes of input that a client may send before it is granted more.
pub(crate) const INPUT_ROOM: usize = 4 << 20;

/// Receives the frames of one call.
#[derive(Clone, Debug)]
pub(crate) struct InputSender {
    frames: mpsc::UnboundedSender<InputFrame>,
    room: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum InputFrame {
    Bytes(Vec<u8>),
    End,
    /// The client sent more than it was granted.
    TooMuch,
}

impl InputSender {
    /// Accepts a frame; an empty one ends the input.
    pub(crate) fn push(&self, bytes: Vec<u8>) {
        let fits = |room: usize| room.checked_sub(bytes.len());
        let frame = match self.room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Err(_) => InputFrame::TooMuch,
            Ok(_) if bytes.is_empty() => InputFrame::End,
            Ok(_) => InputFrame::Bytes(bytes),
        };
        // If the call stopped reading, the rest is dropped.
        let _ = self.frames.send(frame);
    }
}

/// Both ends of a call's input. Read bytes are granted to the client again, with an event.
pub(crate) fn input_channel(id: RequestId, output: Output) -> (InputSender, Input) {
    let (sender, frames) = mpsc::unbounded_channel();
    let (granted, mut grants) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(room) = grants.recv().await {
            output.event(&id, json!({ "event": "input", "room": room })).await;
        }
    });
    let room = Arc::new(AtomicUsize::new(INPUT_ROOM));
    let reader = InputReader { frames, granted, room: room.clone(), bytes: Cursor::default(), has_ended: false };
    (InputSender { frames: sender, room }, Input::Stream(Box::new(reader)))
}

struct InputReader {
    frames: mpsc::UnboundedReceiver<InputFrame>,
    granted: mpsc::UnboundedSender<usize>,
    room: Arc<AtomicUsize>,
    /// The current frame.
    bytes: Cursor<Vec<u8>>,
    has_ended: bool,
}

impl AsyncRead for InputReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let count = this.bytes.read(into.initialize_unfilled())?;
            into.advance(count);
            if count > 0 || this.has_ended || into.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            match ready!(this.frames.poll_recv(cx)) {
                Some(InputFrame::Bytes(bytes)) => {
                    this.room.fetch_add(bytes.len(), Ordering::Relaxed);
                    let _ = this.granted.send(bytes.len());
                    this.bytes = Cursor::new(bytes);
                }
                Some(InputFrame::End) => this.has_ended = true,
                Some(InputFrame::TooMuch) => {
                    return Poll::Ready(Err(io::Error::other("more was sent than there was room for")));
                }
                // The client has disconnected: the input is incomplete.
                None => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn begun() -> (InputSender, Box<dyn AsyncRead + Send + Sync + Unpin>) {
        let (output, _) = Output::to(io::sink(), CancellationToken::new());
        match input_channel(RequestId::from_json(b"1").unwrap(), output) {
            (sender, Input::Stream(reader)) => (sender, reader),
            (_, Input::Bytes(_)) => unreachable!("it is a stream"),
        }
    }

    #[tokio::test]
    async fn frames_are_read_to_their_end() {
        let (sender, mut reader) = begun();
        for part in ["one ", "two", ""] {
            sender.push(part.as_bytes().to_vec());
        }
        let mut text = String::new();
        reader.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "one two");
    }

    #[tokio::test]
    async fn input_without_an_end_is_incomplete() {
        let (sender, mut reader) = begun();
        sender.push(b"half".to_vec());
        drop(sender);
        let failed = reader.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_client_that_exceeds_its_window_is_refused() {
        let (sender, mut reader) = begun();
        sender.push(vec![0; INPUT_ROOM]);
        sender.push(vec![0; 1]);
        sender.push(Vec::new());
        assert!(reader.read_to_end(&mut Vec::new()).await.is_err());
        // Read bytes are granted again.
        let (sender, mut reader) = begun();
        sender.push(vec![0; INPUT_ROOM]);
        reader.read_exact(&mut vec![0; INPUT_ROOM]).await.unwrap();
        sender.push(vec![0; INPUT_ROOM]);
        sender.push(Vec::new());
        assert_eq!(reader.read_to_end(&mut Vec::new()).await.unwrap(), INPUT_ROOM);
    }
}
