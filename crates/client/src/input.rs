//! Sends input to the guest, as fast as it reads.

use std::io;

use coracle_protocol::{CHUNK, HostMessage};
use coracle_types::Input;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::connection::Sender;

/// The input of a command or the content of a file, and how much of it was sent.
pub(crate) struct InputSource {
    source: StdinSource,
    /// Whether some of it was passed to the connection.
    begun: bool,
    /// Whether all of it was passed to the connection.
    done: bool,
}

enum StdinSource {
    Nothing,
    Bytes { bytes: Vec<u8>, at: usize },
    Stream(Box<dyn AsyncRead + Send + Sync + Unpin>),
}

impl InputSource {
    /// The input of a command.
    pub(crate) fn input(input: Option<Input>) -> Self {
        match input {
            None => Self::nothing(),
            Some(Input::Bytes(bytes)) if bytes.is_empty() => Self::nothing(),
            Some(input) => Self::content(input),
        }
    }

    fn nothing() -> Self {
        Self { source: StdinSource::Nothing, begun: false, done: true }
    }

    /// The content of a file, which may be empty.
    pub(crate) fn content(input: Input) -> Self {
        let source = match input {
            Input::Bytes(bytes) => StdinSource::Bytes { bytes, at: 0 },
            Input::Stream(stream) => StdinSource::Stream(stream),
        };
        Self { source, begun: false, done: false }
    }

    /// Sends the rest. Ends early, without an error, if the channel has ended.
    ///
    /// # Errors
    /// If the stream cannot be read.
    pub(crate) async fn run(&mut self, to: &Sender) -> io::Result<()> {
        while !self.done {
            let window = to.reserve().await;
            if window == 0 {
                return Ok(());
            }
            let (piece, last) = match self.source.next(window).await {
                Ok(next) => next,
                Err(err) => {
                    to.unreserve(window);
                    return Err(err);
                }
            };
            to.unreserve(window - piece.len());
            self.begun = true;
            if !to.send(HostMessage::Data { last }, piece).await {
                return Ok(());
            }
            self.done = last;
        }
        Ok(())
    }

    /// Whether all of it was passed to the connection.
    pub(crate) fn done(&self) -> bool {
        self.done
    }

    /// Whether the guest certainly has all of it. The end of a stream is a separate frame that gets no credit, so for a stream
    /// this is never certain.
    pub(crate) fn is_complete(&self, to: &Sender) -> bool {
        match &self.source {
            StdinSource::Nothing => true,
            StdinSource::Bytes { bytes, .. } => self.done && !bytes.is_empty() && to.all_taken(),
            StdinSource::Stream(_) => false,
        }
    }

    /// Starts again from the beginning; `false` if that is impossible.
    pub(crate) fn rewind(&mut self) -> bool {
        match &mut self.source {
            StdinSource::Nothing => return true,
            StdinSource::Bytes { at, .. } => *at = 0,
            StdinSource::Stream(_) if self.begun => return false,
            StdinSource::Stream(_) => {}
        }
        (self.begun, self.done) = (false, false);
        true
    }
}

impl StdinSource {
    /// The next piece, and whether it is the last one.
    async fn next(&mut self, room: usize) -> io::Result<(Vec<u8>, bool)> {
        match self {
            Self::Nothing => Ok((Vec::new(), true)),
            Self::Bytes { bytes, at } => {
                let end = bytes.len().min(*at + room);
                let piece = bytes[*at..end].to_vec();
                *at = end;
                Ok((piece, end == bytes.len()))
            }
            Self::Stream(stream) => {
                let mut piece = vec![0; room.min(CHUNK)];
                let count = stream.read(&mut piece).await?;
                piece.truncate(count);
                Ok((piece, count == 0))
            }
        }
    }
}
