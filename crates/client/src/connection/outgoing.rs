//! The way out of a connection, with what is under way on it.

use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

use crate::channels::WriteBatch;

/// The way out of a connection, with what is under way on it. Who has it writes.
pub(super) struct Outgoing {
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Whole frames, of which the first bytes were written.
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
        // What did not go out at all, since the guest is gone, can be asked of the next one.
        if self.written == 0 {
            self.batch.went_out();
        }
        self.written += count;
        Poll::Ready(Ok(()))
    }
}
