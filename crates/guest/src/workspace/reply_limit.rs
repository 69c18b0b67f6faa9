//! Encodes a reply within its size limit.

use crate::protocol::body::encode;
use crate::protocol::workspace::{GrepMatch, MAX_WORKSPACE_REPLY, WorkspaceReply};

/// A reply of at most [`MAX_WORKSPACE_REPLY`] bytes: fewer entries, if necessary.
pub(super) fn encoded(mut reply: WorkspaceReply) -> Vec<u8> {
    loop {
        let body = encode(&reply);
        if body.len() <= MAX_WORKSPACE_REPLY || !halve(&mut reply) {
            return body;
        }
    }
}

/// Drops the second half of a list; returns whether there was one.
fn halve(reply: &mut WorkspaceReply) -> bool {
    let (len, omitted) = match reply {
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

/// The approximate size of a match in a reply, in bytes.
pub(super) fn weight(hit: &GrepMatch) -> usize {
    let of = |it: &String| 4 + it.len();
    64 + of(&hit.path) + of(&hit.text) + hit.before.iter().chain(&hit.after).map(of).sum::<usize>()
}
