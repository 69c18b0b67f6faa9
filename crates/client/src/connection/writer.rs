//! Writes to the guest. A caller writes its request directly, which saves waking another thread. What does not fit into the
//! socket is left to a task.

use std::any::Any;
use std::io::Result;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use super::outgoing::Outgoing;
use super::state::{CLOSE_TIMEOUT, ConnectionInner};
use crate::codec::with_source;

impl ConnectionInner {
    /// Fills the buffer with queued frames once it is written. Returns whether there is something to write.
    fn fill(&self, outgoing: &mut Outgoing) -> bool {
        if outgoing.written == outgoing.bytes.len() {
            outgoing.bytes.clear();
            outgoing.written = 0;
            outgoing.batch = self.lock().batch(&mut outgoing.bytes);
            self.queue_permits.add_permits(outgoing.batch.queue_permits);
        }
        !outgoing.bytes.is_empty()
    }

    /// Writes as much as possible without waiting; the task writes the rest and handles errors.
    pub(super) fn write_now(&self) {
        let Ok(mut outgoing) = self.outgoing.try_lock() else { return self.wake.notify_one() };
        let mut no_wakeup = Context::from_waker(Waker::noop());
        while self.fill(&mut outgoing) {
            match outgoing.poll_write(&mut no_wakeup) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) | Poll::Pending => return self.wake.notify_one(),
            }
        }
    }
}

/// Writes queued frames. Holds the resources of the connection, and drops them when it closes.
pub(super) async fn write(shared: Arc<ConnectionInner>, hold: Box<dyn Any + Send>) {
    loop {
        tokio::select! {
            biased;
            () = shared.over.cancelled() => break,
            () = shared.closing.cancelled() => {
                let _ = timeout(CLOSE_TIMEOUT, flush(&shared)).await;
                break;
            }
            () = shared.wake.notified() => {}
        }
        let written = tokio::select! {
            biased;
            () = shared.over.cancelled() => break,
            () = closed_by_callers(&shared) => break,
            written = flush(&shared) => written,
        };
        if let Err(err) = written {
            // Messages that the guest sent before it closed can still be read.
            sleep(CLOSE_TIMEOUT).await;
            shared.end(&with_source(&err.into()));
        }
    }
    let mut outgoing = shared.outgoing.lock().await;
    let _ = timeout(CLOSE_TIMEOUT, outgoing.writer.shutdown()).await;
    // A call may hold the connection longer, but not its socket.
    *outgoing = Outgoing::new(Box::new(tokio::io::sink()));
    drop(hold);
}

/// Completes a while after the last caller has dropped the connection.
async fn closed_by_callers(shared: &ConnectionInner) {
    shared.closing.cancelled().await;
    sleep(CLOSE_TIMEOUT).await;
}

/// Cancel safe: partly written frames stay in the buffer.
async fn flush(shared: &ConnectionInner) -> Result<()> {
    let mut outgoing = shared.outgoing.lock().await;
    while shared.fill(&mut outgoing) {
        std::future::poll_fn(|cx| outgoing.poll_write(cx)).await?;
    }
    outgoing.writer.flush().await
}
