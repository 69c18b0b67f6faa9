//! Input on its way to the guest, as fast as it takes it.

use std::io;

use coracle_protocol::{CHUNK, HostMessage};
use coracle_types::Input;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::connection::Sender;

/// Input of a command or content of a file, and how far it got.
pub(crate) struct InputSource {
    source: StdinSource,
    /// Something of it was given to the connection.
    begun: bool,
    /// All of it was.
    done: bool,
}

enum StdinSource {
    Nothing,
    Bytes { bytes: Vec<u8>, at: usize },
    Stream(Box<dyn AsyncRead + Send + Sync + Unpin>),
}

impl InputSource {
    /// Input of a command: none at all when there is none.
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

    /// Content of a file, which may be empty.
    pub(crate) fn content(input: Input) -> Self {
        let source = match input {
            Input::Bytes(bytes) => StdinSource::Bytes { bytes, at: 0 },
            Input::Stream(stream) => StdinSource::Stream(stream),
        };
        Self { source, begun: false, done: false }
    }

    /// Sends all that is left. Ends early, without an error, when nobody listens any more.
    ///
    /// # Errors
    /// When the stream cannot be read.
    pub(crate) async fn run(&mut self, to: &Sender) -> io::Result<()> {
        while !self.done {
            let room = to.reserve().await;
            if room == 0 {
                return Ok(());
            }
            let (piece, last) = match self.source.next(room).await {
                Ok(next) => next,
                Err(err) => {
                    to.unreserve(room);
                    return Err(err);
                }
            };
            to.unreserve(room - piece.len());
            self.begun = true;
            if !to.send(HostMessage::Data { last }, piece).await {
                return Ok(());
            }
            self.done = last;
        }
        Ok(())
    }

    /// All of it was given to the connection.
    pub(crate) fn done(&self) -> bool {
        self.done
    }

    /// The guest certainly has all of it. The end of a stream follows its bytes in a frame of its own, for which nothing
    /// comes back, so of a stream that is never certain.
    pub(crate) fn settled(&self, to: &Sender) -> bool {
        match &self.source {
            StdinSource::Nothing => true,
            StdinSource::Bytes { bytes, .. } => self.done && !bytes.is_empty() && to.all_taken(),
            StdinSource::Stream(_) => false,
        }
    }

    /// Begins again; `false` when that cannot be.
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
    /// The next piece, and whether nothing comes after it.
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
