//! Messages of one channel that wait to be looked at, and what was reserved for them.

use crate::protocol::HostMessage;
use crate::protocol::mux::{self, Backlog, BacklogSender};
use crate::server::quota::Reservation;

/// Small messages that wait, at most. A host says a channel to cancel, to resize or to leave a few times.
const MAX_WAITING: usize = 256;

/// Puts messages in. To drop it is to say that nothing more comes.
pub(crate) type Sender = BacklogSender<HostMessage>;

/// What a channel receives after it was opened. To drop it is to receive nothing more.
#[derive(Debug)]
pub(crate) struct RequestReceiver {
    backlog: Backlog<HostMessage>,
    /// The bytes that the opening frame announced.
    payload: Option<Reservation>,
}

/// An empty inbox.
pub(crate) fn inbox() -> (Sender, RequestReceiver) {
    let (sender, backlog) = mux::backlog(MAX_WAITING);
    (sender, RequestReceiver { backlog, payload: None })
}

impl RequestReceiver {
    /// Holds what was reserved for the payload until that [is taken](Self::payload_is_taken), or the inbox is dropped.
    pub(crate) fn hold_payload(&mut self, payload: Reservation) {
        self.payload = Some(payload);
    }

    /// The next message; `None` when nothing more comes. Safe to abandon.
    pub(crate) async fn recv(&mut self) -> Option<(HostMessage, Vec<u8>)> {
        self.backlog.recv().await
    }

    /// The payload is held no longer, or elsewhere.
    pub(crate) fn payload_is_taken(&mut self) {
        self.payload = None;
    }
}
