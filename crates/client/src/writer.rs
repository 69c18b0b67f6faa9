//! What goes to the guest. A caller writes its request itself: another thread would first have to be woken for it. What the
//! socket has no room for is left to a task.

use std::any::Any;
use std::fmt;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use crate::channels::Batch;
use crate::connection::{PARTING, Shared, told};

/// The way out of a connection, with what is under way on it. Who has it writes.
pub(crate) struct Outgoing {
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    /// Whole frames, of which the first bytes were written.
    bytes: Vec<u8>,
    written: usize,
    batch: Batch,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outgoing").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Outgoing {
    pub(crate) fn new(writer: Box<dyn AsyncWrite + Send + Unpin>) -> Self {
        Self { writer, bytes: Vec::new(), written: 0, batch: Batch::default() }
    }

    /// Takes what waits, when all that was taken before is written. Whether there is something to write.
    fn take(&mut self, shared: &Shared) -> bool {
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
            self.batch = shared.lock().batch(&mut self.bytes);
            shared.places.add_permits(self.batch.places);
        }
        !self.bytes.is_empty()
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
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

impl Shared {
    /// Writes what waits as far as that goes without waiting; the rest, and what becomes of a failure, is the task's.
    pub(crate) fn write_now(&self) {
        let Ok(mut outgoing) = self.outgoing.try_lock() else { return self.wake.notify_one() };
        let mut nobody = Context::from_waker(Waker::noop());
        while outgoing.take(self) {
            match outgoing.poll_write(&mut nobody) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) | Poll::Pending => return self.wake.notify_one(),
            }
        }
    }
}

/// Holds what the connection hangs on, and lets it go with it.
pub(crate) async fn write(shared: Arc<Shared>, hold: Box<dyn Any + Send>) {
    loop {
        tokio::select! {
            biased;
            () = shared.over.cancelled() => break,
            () = shared.parting.cancelled() => {
                let _ = timeout(PARTING, flush(&shared)).await;
                break;
            }
            () = shared.wake.notified() => {}
        }
        let written = tokio::select! {
            biased;
            () = shared.over.cancelled() => break,
            () = parted(&shared) => break,
            written = flush(&shared) => written,
        };
        if let Err(err) = written {
            // What the guest said before it closed is still to be read.
            sleep(PARTING).await;
            shared.end(&told(&err.into()));
        }
    }
    let mut outgoing = shared.outgoing.lock().await;
    let _ = timeout(PARTING, outgoing.writer.shutdown()).await;
    // A call may hold the connection a while longer, but not its socket.
    *outgoing = Outgoing::new(Box::new(tokio::io::sink()));
    drop(hold);
}

/// A while after nobody will ask anything any more.
async fn parted(shared: &Shared) {
    shared.parting.cancelled().await;
    sleep(PARTING).await;
}

/// May be abandoned: what is under way stays where it is.
async fn flush(shared: &Shared) -> Result<()> {
    let mut outgoing = shared.outgoing.lock().await;
    while outgoing.take(shared) {
        std::future::poll_fn(|cx| outgoing.poll_write(cx)).await?;
    }
    outgoing.writer.flush().await
}
