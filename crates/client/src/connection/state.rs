//! What the calls of a connection share with the tasks that read and write, and what a call is told when it is over.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use coracle_types::Error;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::outgoing::Outgoing;
use crate::channels::Channels;

/// How long a call waits until it may be put to the guest: calls that hang must not hang all others.
pub(super) const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the last words to a guest may take.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A call whose connection is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLost {
    pub(crate) reason: String,
    /// The guest may have got what was asked.
    pub(crate) sent: bool,
    /// The connection stands, and takes no more calls.
    pub(crate) full: bool,
}

impl ConnectionLost {
    pub(super) fn full() -> Self {
        let reason = format!("no place for another call within {} s", QUEUE_TIMEOUT.as_secs());
        Self { reason, sent: false, full: true }
    }

    /// What it is to who asked for `verb`.
    pub(crate) fn into_error(self, verb: &'static str) -> Error {
        if self.full {
            return Error::TimedOut { verb, after: QUEUE_TIMEOUT };
        }
        Error::GuestLost { reason: self.reason, output: None }
    }
}

impl From<ConnectionLost> for Error {
    fn from(it: ConnectionLost) -> Self {
        it.into_error("link")
    }
}

pub(super) struct ConnectionInner {
    pub(super) outgoing: tokio::sync::Mutex<Outgoing>,
    /// When the guest last said something.
    pub(super) heard: Mutex<Instant>,
    pub(super) channels: Mutex<Channels>,
    /// Something waits to be written.
    pub(super) wake: Notify,
    pub(super) places: Semaphore,
    pub(super) numbers: Arc<Semaphore>,
    pub(super) long_replies: Arc<Semaphore>,
    pub(super) over: CancellationToken,
    /// Nobody will ask anything any more.
    pub(super) parting: CancellationToken,
}

impl ConnectionInner {
    pub(super) fn lock(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn broken(&self, sent: bool) -> ConnectionLost {
        let reason = self.lock().over.clone().unwrap_or_else(|| "the guest had said its last word".into());
        ConnectionLost { reason, sent, full: false }
    }

    pub(super) fn end(&self, reason: &str) {
        tracing::debug!(reason, "the link is over");
        self.lock().end(reason);
        self.places.close();
        self.numbers.close();
        self.long_replies.close();
        self.over.cancel();
    }
}
