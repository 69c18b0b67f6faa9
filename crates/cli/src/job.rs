//! What a job printed goes to standard output as it is; how the job stands goes to standard error.

use std::io;

use coracle::Entry;
use serde_json::{Map, Value};

use super::stdio::out;

/// A page goes to a terminal or a pipe byte for byte, so it is asked for as bytes.
pub(super) fn as_bytes(entry: &Entry, object: &mut Map<String, Value>) {
    if entry.name == "job_read" && !object.contains_key("pattern") {
        object.insert("encoding".into(), "base64".into());
    }
}

/// Prints output of a job. Tells whether what follows begins on a line of its own: it does on a terminal, where the line is ended. A pipe gets the bytes
/// as they are. A reader that has gone has seen enough.
pub(super) fn print(bytes: &[u8], terminal: bool) -> bool {
    let _ = out(io::stdout().lock(), bytes);
    let whole = bytes.last().is_none_or(|it| *it == b'\n');
    if terminal && !whole {
        let _ = out(io::stdout().lock(), b"\n");
    }
    terminal || whole
}
