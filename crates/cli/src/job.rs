//! Prints the output of a job unchanged to standard output, and its state to standard error.

use coracle::OperationEntry;
use serde_json::{Map, Value};

use super::stdio::write_stdout;

/// Requests a page as bytes, because it is printed byte for byte.
pub(super) fn as_bytes(entry: &OperationEntry, object: &mut Map<String, Value>) {
    if entry.name == "job_read" && !object.contains_key("pattern") {
        object.insert("encoding".into(), "base64".into());
    }
}

/// Prints output of a job. Returns whether the next text begins on a new line: on a terminal the line is ended, a pipe
/// gets the unchanged bytes.
pub(super) fn print(bytes: &[u8], terminal: bool) -> bool {
    let _ = write_stdout(bytes);
    let whole = bytes.last().is_none_or(|it| *it == b'\n');
    if terminal && !whole {
        let _ = write_stdout(b"\n");
    }
    terminal || whole
}
