//! Limits how many calls of a session run at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::response::Result;
use crate::{Code, Failure};

/// Lets a number of calls run at once; others wait in order.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    places: Semaphore,
    waiting: AtomicUsize,
    most: usize,
}

/// The longest wait.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(120);

impl ConcurrencyLimit {
    /// Limits for running and for waiting calls.
    #[must_use]
    pub fn new(running: usize, waiting: usize) -> Self {
        Self { places: Semaphore::new(running), waiting: AtomicUsize::new(0), most: waiting }
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> Result<SemaphorePermit<'_>> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(place);
        }
        let waiting = WaitingCall::one_more(&self.waiting);
        if waiting.others >= self.most {
            return busy(&format!("{} calls wait already", self.most));
        }
        match tokio::time::timeout(QUEUE_TIMEOUT, self.places.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            _ => busy(&format!("no place came free within {} s", QUEUE_TIMEOUT.as_secs())),
        }
    }
}

fn busy<T>(why: &str) -> Result<T> {
    let failure = Failure::new(Code::Busy, format!("The session is busy: {why}.")).detail("retry_after_ms", 1000);
    Err(Box::new(failure))
}

/// Counts waiting calls, and those that give up.
struct WaitingCall<'a> {
    all: &'a AtomicUsize,
    others: usize,
}

impl<'a> WaitingCall<'a> {
    fn one_more(all: &'a AtomicUsize) -> Self {
        Self { others: all.fetch_add(1, Ordering::SeqCst), all }
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::ConcurrencyLimit;
    use crate::Code;

    #[tokio::test(start_paused = true)]
    async fn calls_beyond_the_limit_wait_and_those_beyond_the_queue_are_refused() {
        let gate = ConcurrencyLimit::new(1, 1);
        let first = gate.acquire().await.unwrap();
        let second = gate.acquire();
        tokio::pin!(second);
        assert!(futures_poll(second.as_mut()).await.is_none());
        assert_eq!(gate.acquire().await.unwrap_err().code, Code::Busy);
        drop(first);
        assert!(second.await.is_ok());
        let _held = gate.acquire().await.unwrap();
        assert_eq!(gate.acquire().await.unwrap_err().code, Code::Busy, "no call waits for ever");
    }

    /// Polls a future once.
    async fn futures_poll<F: Future>(mut it: std::pin::Pin<&mut F>) -> Option<F::Output> {
        std::future::poll_fn(|cx| match it.as_mut().poll(cx) {
            std::task::Poll::Ready(it) => std::task::Poll::Ready(Some(it)),
            std::task::Poll::Pending => std::task::Poll::Ready(None),
        })
        .await
    }
}
