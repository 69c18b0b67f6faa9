//! What a request may make a guest hold, by its own words.

use crate::protocol::{ErrorCode, MAX_COMMAND, MAX_HEADER, MAX_SECRET, MAX_SESSION, Request, RpcError, WINDOW};
use crate::server::codec::Frame;
use crate::workspace::MAX_BROUGHT;

/// Bytes that a request may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// Held as long as its channel is open: what its header says, and a window if it takes data.
    pub(super) channel: usize,
    /// In its first frame and what follows by [`Request::More`].
    pub(super) payload: usize,
}

impl Demand {
    /// # Errors
    /// [`ErrorCode::TooLong`] for more than any such request may announce.
    pub(super) fn of(frame: &Frame<Request>) -> Result<Self, RpcError> {
        let (announced, limit) = announced(&frame.head);
        if announced > limit {
            return Err(RpcError::new(ErrorCode::TooLong, format!("{announced} bytes are announced, above {limit}")));
        }
        let window = if takes_data(&frame.head) { WINDOW as usize } else { 0 };
        Ok(Self { channel: MAX_HEADER + window, payload: announced.max(frame.payload.len()) })
    }
}

/// Bytes of payload, and how many there may be at most.
fn announced(ask: &Request) -> (usize, usize) {
    match ask {
        Request::Exec(it) => (it.words as usize + it.env as usize + it.secret as usize, MAX_COMMAND + MAX_SECRET),
        Request::Session { bytes } => (*bytes as usize, MAX_SESSION),
        Request::Secret(it) => (it.bytes as usize, MAX_SESSION),
        Request::Relay(it) => (it.bytes as usize, MAX_SESSION),
        Request::Walk(it) => (it.holding.as_ref().map_or(0, |it| it.bytes as usize), MAX_SESSION),
        Request::Space(it) => (it.bytes as usize, MAX_BROUGHT),
        _ => (0, 0),
    }
}

fn takes_data(ask: &Request) -> bool {
    matches!(ask, Request::Put { .. } | Request::Outlet(_)) || matches!(ask, Request::Exec(it) if it.stdin)
}
