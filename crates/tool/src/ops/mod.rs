//! The operations: one file each, and the table that drives every mouth.

mod preflight;

use crate::context::Context;
use crate::op::Entry;

/// All of them, in the order in which they are told.
pub const ALL: &[Entry] = &[Entry::of::<preflight::Preflight>()];

/// What a session leaves behind when its connection ends (containers.md 14.9).
pub(crate) async fn end_session(cx: &Context) {
    tracing::debug!(session = %cx.session, "the session ended");
}
