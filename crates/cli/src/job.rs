//! Output of a job goes to standard output as it is, its state to standard error.

use coracle::OperationEntry;
use serde_json::{Map, Value};

use super::stdio::write_stdout;

/// Requests a page as bytes, since it is printed byte for byte.
pub(super) fn as_bytes(entry: &OperationEntry, object: &mut Map<String, Value>) {
    if entry.name == "job_read" && !object.contains_key("pattern") {
        object.insert("encoding".into(), "base64".into());
    }
}

/// Prints output of a job. Returns whether the next text begins on a new line: on a terminal the line is ended, a pipe gets
/// the bytes as they are.
pub(super) fn print(bytes: &[u8], terminal: bool) -> bool {
    let _ = write_stdout(bytes);
    let whole = bytes.last().is_none_or(|it| *it == b'\n');
    if terminal && !whole {
        let _ = write_stdout(b"\n");
    }
    terminal || whole
}
