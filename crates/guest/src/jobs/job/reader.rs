//! Reads a command's output.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Longest read in bytes.
const BUFFER: usize = 64 << 10;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// Reads one of the two outputs of a command.
pub(super) struct OutputPipe {
    source: Option<Box<dyn AsyncRead + Send + Unpin>>,
    buffer: Vec<u8>,
}

impl OutputPipe {
    /// Whether its end was not reached yet.
    pub(super) fn is_open(&self) -> bool {
        self.source.is_some()
    }

    /// The bytes of the last read.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    pub(super) fn new(source: Option<Box<dyn AsyncRead + Send + Unpin>>) -> Self {
        Self { source, buffer: Vec::new() }
    }

    /// Reads the next bytes into the buffer; `false` at the end. Cancel safe.
    ///
    /// All pipes share one scratch buffer, so a command that prints little needs little memory.
    pub(super) async fn read(&mut self) -> bool {
        let Self { source: Some(source), buffer } = self else { return false };
        let read = poll_fn(|cx| {
            SCRATCH.with_borrow_mut(|scratch| {
                let mut into = ReadBuf::new(scratch);
                let read = ready!(Pin::new(&mut **source).poll_read(cx, &mut into));
                buffer.clear();
                buffer.extend_from_slice(into.filled());
                Poll::Ready(read)
            })
        });
        // A terminal that no process has open any more fails with EIO, which is its end.
        let more = read.await.is_ok() && !self.buffer.is_empty();
        if !more {
            *self = Self::new(None);
        }
        more
    }
}
