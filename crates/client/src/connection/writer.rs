//! What goes to the guest. A caller writes its request itself: another thread would first have to be woken for it. What the
//! socket has no room for is left to a task.

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
    /// Takes what waits, when all that was taken before is written. Whether there is something to write.
    fn fill(&self, outgoing: &mut Outgoing) -> bool {
        if outgoing.written == outgoing.bytes.len() {
            outgoing.bytes.clear();
            outgoing.written = 0;
            outgoing.batch = self.lock().batch(&mut outgoing.bytes);
            self.places.add_permits(outgoing.batch.places);
        }
        !outgoing.bytes.is_empty()
    }

    /// Writes what waits as far as that goes without waiting; the rest, and what becomes of a failure, is the task's.
    pub(super) fn write_now(&self) {
        let Ok(mut outgoing) = self.outgoing.try_lock() else { return self.wake.notify_one() };
        let mut nobody = Context::from_waker(Waker::noop());
        while self.fill(&mut outgoing) {
            match outgoing.poll_write(&mut nobody) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) | Poll::Pending => return self.wake.notify_one(),
            }
        }
    }
}

/// Holds what the connection hangs on, and lets it go with it.
pub(super) async fn write(shared: Arc<ConnectionInner>, hold: Box<dyn Any + Send>) {
    loop {
        tokio::select! {
            biased;
            () = shared.over.cancelled() => break,
            () = shared.parting.cancelled() => {
                let _ = timeout(CLOSE_TIMEOUT, flush(&shared)).await;
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
            sleep(CLOSE_TIMEOUT).await;
            shared.end(&with_source(&err.into()));
        }
    }
    let mut outgoing = shared.outgoing.lock().await;
    let _ = timeout(CLOSE_TIMEOUT, outgoing.writer.shutdown()).await;
    // A call may hold the connection a while longer, but not its socket.
    *outgoing = Outgoing::new(Box::new(tokio::io::sink()));
    drop(hold);
}

/// A while after nobody will ask anything any more.
async fn parted(shared: &ConnectionInner) {
    shared.parting.cancelled().await;
    sleep(CLOSE_TIMEOUT).await;
}

/// May be abandoned: what is under way stays where it is.
async fn flush(shared: &ConnectionInner) -> Result<()> {
    let mut outgoing = shared.outgoing.lock().await;
    while shared.fill(&mut outgoing) {
        std::future::poll_fn(|cx| outgoing.poll_write(cx)).await?;
    }
    outgoing.writer.flush().await
}
