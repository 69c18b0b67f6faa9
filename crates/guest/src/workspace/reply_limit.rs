//! Serialises a reply within its size limit.

use crate::protocol::workspace::{GrepMatch, MAX_TOLD, WorkspaceReply};

/// JSON of at most [`MAX_TOLD`] bytes: fewer entries, if need be.
pub(super) fn json(mut done: WorkspaceReply) -> Vec<u8> {
    loop {
        let json = serde_json::to_vec(&done).expect("what is told has string keys only");
        if json.len() <= MAX_TOLD || !halve(&mut done) {
            return json;
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

/// Bytes of a match in JSON, about: control characters are six.
pub(super) fn weight(hit: &GrepMatch) -> usize {
    let of = |it: &String| 4 + it.bytes().map(|it| if it < b' ' { 6 } else { 1 }).sum::<usize>();
    let context: usize = hit.before.iter().chain(&hit.after).map(of).sum();
    64 + of(&hit.path) + of(&hit.text) + context
}
