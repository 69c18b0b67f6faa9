//! What a job printed goes to standard output as it is; how the job stands goes to standard error.

use std::io;
use std::process::ExitCode;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle::Entry;
use serde_json::{Map, Value};

use super::stdio::out;
use crate::render;

/// The time was over: what `timeout` says then.
const TIMED_OUT: u8 = 124;

/// A page goes to a terminal or a pipe byte for byte, so it is asked for as bytes.
pub(super) fn as_bytes(entry: &Entry, object: &mut Map<String, Value>) {
    if entry.name == "job_read" && !object.contains_key("pattern") {
        object.insert("encoding".into(), "base64".into());
    }
}

/// Shows output of a job, where that is what the answer is about.
pub(super) fn show(operation: &str, call: &Value, answer: &Map<String, Value>, terminal: bool) -> Option<ExitCode> {
    match operation {
        "exec_poll" | "job_wait" => {
            let ended = print(text(answer, "output").as_bytes(), terminal);
            render::job(answer, ended);
        }
        "job_read" if answer.contains_key("data") => {
            let ended = print(&STANDARD.decode(text(answer, "data")).unwrap_or_default(), terminal);
            render::rest_of_output(answer, ended);
        }
        _ => return None,
    }
    Some(ExitCode::from(if operation == "job_wait" { status(call, answer) } else { 0 }))
}

/// Whether what follows begins on a line of its own: it does on a terminal, where the line is ended. A pipe gets the bytes
/// as they are. A reader that has gone has seen enough.
fn print(bytes: &[u8], terminal: bool) -> bool {
    let _ = out(io::stdout().lock(), bytes);
    let whole = bytes.last().is_none_or(|it| *it == b'\n');
    if terminal && !whole {
        let _ = out(io::stdout().lock(), b"\n");
    }
    terminal || whole
}

/// The exit code of `job-wait`: scripts ask whether what they waited for came, or how the job ended.
pub(super) fn status(call: &Value, answer: &Map<String, Value>) -> u8 {
    let code = answer.get("exit_code").and_then(Value::as_u64).and_then(|it| u8::try_from(it).ok());
    match text(answer, "reason") {
        "timeout" => TIMED_OUT,
        "exit" if code == Some(0) && !waits_for_exit(&call["until"]) => 1,
        "exit" => code.unwrap_or(1),
        _ => 0,
    }
}

fn waits_for_exit(until: &Value) -> bool {
    match until {
        Value::Array(several) => several.iter().any(|it| it == "exit"),
        one => one.is_null() || one == "exit",
    }
}

fn text<'a>(answer: &'a Map<String, Value>, key: &str) -> &'a str {
    answer.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    fn check(until: &Value, reason: &str, exit_code: Option<u8>) -> u8 {
        let answer = json!({ "reason": reason, "exit_code": exit_code });
        super::status(&json!({ "until": until }), answer.as_object().unwrap())
    }

    #[test]
    fn a_wait_gives_the_code_of_what_came_of_it() {
        assert_eq!(check(&Value::Null, "exit", Some(3)), 3);
        assert_eq!(check(&json!(["port", "exit"]), "exit", Some(0)), 0);
        assert_eq!(check(&json!("port"), "port", None), 0);
        assert_eq!(check(&json!("port"), "timeout", None), 124);
    }

    #[test]
    fn an_end_that_nobody_waited_for_is_no_success() {
        assert_eq!(check(&json!("port"), "exit", Some(0)), 1);
        assert_eq!(check(&json!(["port"]), "exit", Some(7)), 7);
    }
}
