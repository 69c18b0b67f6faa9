//! The queue of received messages of one channel, and the bytes reserved for them.

use crate::protocol::HostMessage;
use crate::protocol::mux::{self, Backlog, BacklogSender};
use crate::server::quota::Reservation;

/// Limit of queued small messages. A host cancels, resizes or closes a channel only a few times.
const MAX_WAITING: usize = 256;

/// Adds messages. Dropping it marks the end of the messages.
pub(crate) type Sender = BacklogSender<HostMessage>;

/// The messages that a channel receives after it was opened. Dropping it discards further ones.
#[derive(Debug)]
pub(crate) struct RequestReceiver {
    backlog: Backlog<HostMessage>,
    /// The reservation for the bytes that the opening frame announced.
    payload: Option<Reservation>,
}

/// Creates an empty queue.
pub(crate) fn inbox() -> (Sender, RequestReceiver) {
    let (sender, backlog) = mux::backlog(MAX_WAITING);
    (sender, RequestReceiver { backlog, payload: None })
}

impl RequestReceiver {
    /// Holds the reservation of the request until it [is parsed](Self::release_payload), or the queue is dropped.
    pub(crate) fn hold_payload(&mut self, payload: Reservation) {
        self.payload = Some(payload);
    }

    /// The next message; `None` at the end. Cancel safe.
    pub(crate) async fn recv(&mut self) -> Option<(HostMessage, Vec<u8>)> {
        self.backlog.recv().await
    }

    /// Releases the reservation: the request is parsed, or its bytes are counted elsewhere.
    pub(crate) fn release_payload(&mut self) {
        self.payload = None;
    }
}
