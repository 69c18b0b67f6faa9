//! The write half of a connection, with its partly written frames.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use crate::channels::WriteBatch;

/// The write half of a connection, with its partly written frames. Only one task writes at a time.
pub(super) struct Outgoing {
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Whole frames, of which the first `written` bytes were written.
    pub(super) bytes: Vec<u8>,
    pub(super) written: usize,
    pub(super) batch: WriteBatch,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Outgoing {
    pub(super) fn new(writer: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        Self { writer, bytes: Vec::new(), written: 0, batch: WriteBatch::default() }
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let count = match Pin::new(&mut self.writer).poll_write(cx, &self.bytes[self.written..]) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(Error::from(ErrorKind::WriteZero))),
            Poll::Ready(Ok(count)) => count,
            Poll::Ready(Err(err)) => return Poll::Ready(Err(err)),
            Poll::Pending => return Poll::Pending,
        };
        // If no byte was written, the calls can be repeated on another connection.
        if self.written == 0 {
            self.batch.mark_sent();
        }
        self.written += count;
        Poll::Ready(Ok(()))
    }
}
