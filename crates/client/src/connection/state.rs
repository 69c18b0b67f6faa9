//! The state that the calls of a connection share with the tasks that read and write, and the error for a lost connection.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use coracle_types::Error;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use super::outgoing::Outgoing;
use crate::channels::Channels;

/// How long a call waits for a free channel: calls that hang must not block all others for ever.
pub(super) const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the last messages to a guest.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The error of a call whose connection is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLost {
    pub(crate) reason: String,
    /// Whether the guest may have received the request.
    pub(crate) sent: bool,
    /// Whether the connection is open, but accepts no more calls.
    pub(crate) full: bool,
}

impl ConnectionLost {
    pub(super) fn full() -> Self {
        let reason = format!("no free channel for another call within {} s", QUEUE_TIMEOUT.as_secs());
        Self { reason, sent: false, full: true }
    }

    /// Converts to the error for the caller of `verb`.
    pub(crate) fn into_error(self, verb: &'static str) -> Error {
        if self.full {
            return Error::TimedOut { verb, after: QUEUE_TIMEOUT };
        }
        Error::GuestLost { reason: self.reason, output: None }
    }
}

impl From<ConnectionLost> for Error {
    fn from(lost: ConnectionLost) -> Self {
        lost.into_error("link")
    }
}

pub(super) struct ConnectionInner {
    pub(super) outgoing: tokio::sync::Mutex<Outgoing>,
    /// When the last message was received.
    pub(super) received: Mutex<Instant>,
    pub(super) channels: Mutex<Channels>,
    /// Notified when there are frames to write.
    pub(super) wake: Notify,
    pub(super) queue_permits: Semaphore,
    pub(super) channel_permits: Arc<Semaphore>,
    pub(super) long_replies: Arc<Semaphore>,
    pub(super) over: CancellationToken,
    /// Cancelled when no caller can make further calls.
    pub(super) closing: CancellationToken,
}

impl ConnectionInner {
    pub(super) fn lock(&self) -> MutexGuard<'_, Channels> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn broken(&self, sent: bool) -> ConnectionLost {
        let reason = self.lock().over.clone().unwrap_or_else(|| "the connection was closed".into());
        ConnectionLost { reason, sent, full: false }
    }

    pub(super) fn end(&self, reason: &str) {
        tracing::debug!(reason, "the connection is closed");
        self.lock().end(reason);
        self.queue_permits.close();
        self.channel_permits.close();
        self.long_replies.close();
        self.over.cancel();
    }
}
