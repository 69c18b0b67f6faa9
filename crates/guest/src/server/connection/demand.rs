//! What a request may make a guest hold, by its own words.

use crate::server::codec::Frame;
use crate::wire::{Ask, Fault, FaultCode, MAX_COMMAND, MAX_HEADER, MAX_SECRET, MAX_SESSION, WINDOW};
use crate::workspace::MAX_BROUGHT;

/// Bytes that a request may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// Held as long as its channel is open: what its header says, and a window if it takes data.
    pub(super) channel: usize,
    /// In its first frame and what follows by [`Ask::More`].
    pub(super) payload: usize,
}

impl Demand {
    /// # Errors
    /// [`FaultCode::TooLong`] for more than any such request may announce.
    pub(super) fn of(frame: &Frame<Ask>) -> Result<Self, Fault> {
        let (announced, limit) = announced(&frame.head);
        if announced > limit {
            return Err(Fault::new(FaultCode::TooLong, format!("{announced} bytes are announced, above {limit}")));
        }
        let window = if takes_data(&frame.head) { WINDOW as usize } else { 0 };
        Ok(Self { channel: MAX_HEADER + window, payload: announced.max(frame.payload.len()) })
    }
}

/// Bytes of payload, and how many there may be at most.
fn announced(ask: &Ask) -> (usize, usize) {
    match ask {
        Ask::Exec(it) => (it.words as usize + it.env as usize + it.secret as usize, MAX_COMMAND + MAX_SECRET),
        Ask::Session { bytes } => (*bytes as usize, MAX_SESSION),
        Ask::Secret(it) => (it.bytes as usize, MAX_SESSION),
        Ask::Relay(it) => (it.bytes as usize, MAX_SESSION),
        Ask::Walk(it) => (it.holding.as_ref().map_or(0, |it| it.bytes as usize), MAX_SESSION),
        Ask::Space(it) => (it.bytes as usize, MAX_BROUGHT),
        _ => (0, 0),
    }
}

fn takes_data(ask: &Ask) -> bool {
    matches!(ask, Ask::Put { .. } | Ask::Outlet(_)) || matches!(ask, Ask::Exec(it) if it.stdin)
}
