//! The limit on input that channels have not passed on. The library accepts a client's input whether or not a channel
//! reads it, so this gate stops reading the connection itself while too many bytes wait.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of waiting bytes at which reading stops.
const WAITING: usize = 8 << 20;

/// Maximum number of waiting bytes; beyond it a command is ended.
pub(crate) const MAX_WAITING: usize = 64 << 20;

/// The waiting bytes of one connection.
#[derive(Debug, Default)]
pub(crate) struct InputGate {
    waiting: AtomicUsize,
    blocked_outputs: AtomicUsize,
    reader: AtomicWaker,
}

impl InputGate {
    /// Counts received input; `false` at the limit.
    pub(crate) fn add(&self, bytes: usize) -> bool {
        self.waiting.fetch_add(bytes, Ordering::AcqRel) + bytes <= MAX_WAITING
    }

    /// Subtracts input that was passed on or dropped.
    pub(crate) fn remove(&self, bytes: usize) {
        self.waiting.fetch_sub(bytes, Ordering::AcqRel);
        self.reader.wake();
    }

    /// Marks that output waits for the client, until the value is dropped. The window update that output needs is in the
    /// input, behind other input.
    pub(crate) fn block_output(self: &Arc<Self>) -> BlockedOutput {
        self.blocked_outputs.fetch_add(1, Ordering::AcqRel);
        self.reader.wake();
        BlockedOutput(self.clone())
    }

    fn is_closed(&self) -> bool {
        self.waiting.load(Ordering::Acquire) >= WAITING && self.blocked_outputs.load(Ordering::Acquire) == 0
    }
}

/// Marks output that waits for the client.
#[derive(Debug)]
pub(crate) struct BlockedOutput(Arc<InputGate>);

impl Drop for BlockedOutput {
    fn drop(&mut self) {
        self.0.blocked_outputs.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The client's stream behind the gate.
#[derive(Debug)]
pub(crate) struct GatedStream<R> {
    pub(crate) stream: R,
    pub(crate) gate: Arc<InputGate>,
}

impl<R: AsyncRead + Unpin> AsyncRead for GatedStream<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.gate.reader.register(cx.waker());
        if self.gate.is_closed() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

/// A channel's output, which keeps the gate open while it waits for the client.
#[derive(Debug)]
pub(crate) struct ChannelWriter<W> {
    writer: W,
    gate: Arc<InputGate>,
    blocked: Option<BlockedOutput>,
}

impl<W: AsyncWrite + Unpin> ChannelWriter<W> {
    pub(crate) fn new(writer: W, gate: Arc<InputGate>) -> Self {
        Self { writer, gate, blocked: None }
    }

    fn note<T>(&mut self, polled: Poll<T>) -> Poll<T> {
        self.blocked = match polled {
            Poll::Ready(_) => None,
            Poll::Pending => Some(self.blocked.take().unwrap_or_else(|| self.gate.block_output())),
        };
        polled
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for ChannelWriter<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.writer).poll_write(cx, bytes);
        self.note(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.writer).poll_flush(cx);
        self.note(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.writer).poll_shutdown(cx);
        self.note(ended)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::{Duration, timeout};

    use super::*;

    #[tokio::test]
    async fn reading_stops_while_too_much_input_waits() {
        let gate = Arc::new(InputGate::default());
        let mut stream = GatedStream { stream: &b"ab"[..], gate: gate.clone() };
        assert!(gate.add(WAITING));
        let closed = timeout(Duration::from_millis(20), stream.read_u8()).await;
        assert!(closed.is_err());
        let blocked = gate.block_output();
        assert_eq!(stream.read_u8().await.unwrap(), b'a');
        drop(blocked);
        let (read, ()) = tokio::join!(stream.read_u8(), async {
            tokio::task::yield_now().await;
            gate.remove(1);
        });
        assert_eq!(read.unwrap(), b'b');
        assert!(!gate.add(MAX_WAITING));
    }

    #[tokio::test]
    async fn input_is_read_while_a_writer_waits_for_the_client() {
        let gate = Arc::new(InputGate::default());
        assert!(gate.add(WAITING) && gate.is_closed());
        let (output, mut client) = duplex(1);
        let mut writer = ChannelWriter::new(output, gate.clone());
        let (written, read) = tokio::join!(writer.write_all(b"ab"), async {
            tokio::task::yield_now().await;
            let closed = gate.is_closed();
            (closed, client.read_u8().await.unwrap(), client.read_u8().await.unwrap())
        });
        assert!(written.is_ok());
        assert_eq!(read, (false, b'a', b'b'));
        assert!(gate.is_closed(), "a writer that waits no more");
    }
}
