//! Serialises a reply within its size limit.

use crate::protocol::body::encode;
use crate::protocol::workspace::{GrepMatch, MAX_TOLD, WorkspaceReply};

/// A reply of at most [`MAX_TOLD`] bytes: fewer entries, if need be.
pub(super) fn encoded(mut done: WorkspaceReply) -> Vec<u8> {
    loop {
        let body = encode(&done);
        if body.len() <= MAX_TOLD || !halve(&mut done) {
            return body;
        }
    }
}

/// Leaves the second half of a list away; whether there was any.
fn halve(done: &mut WorkspaceReply) -> bool {
    let (len, omitted) = match done {
        WorkspaceReply::Listed { entries, omitted, .. } | WorkspaceReply::Globbed { entries, omitted, .. } => {
            (cut(entries), omitted)
        }
        WorkspaceReply::Grepped { matches, omitted, .. } => (cut(matches), omitted),
        WorkspaceReply::Touched(all) => return cut(all) > 0,
        WorkspaceReply::Changed(all) => {
            return cut(&mut all.created) + cut(&mut all.modified) + cut(&mut all.deleted) > 0;
        }
        _ => return false,
    };
    *omitted += len as u64;
    len > 0
}

fn cut<T>(list: &mut Vec<T>) -> usize {
    let before = list.len();
    list.truncate(before / 2);
    before - list.len()
}

/// Bytes of a match in a reply, about.
pub(super) fn weight(hit: &GrepMatch) -> usize {
    let of = |it: &String| 4 + it.len();
    64 + of(&hit.path) + of(&hit.text) + hit.before.iter().chain(&hit.after).map(of).sum::<usize>()
}
