//! The line of a tool's call in the event log of its session.

use std::time::Duration;

use coracle_audit::arguments;
use coracle_context::event_log::EventLog;
use coracle_context::humanize::millis;
use coracle_prepare::process::Process;
use coracle_types::{Redactor, is_deceptive};
use serde_json::{Map, Value, json};

use super::chosen_container;
use crate::dispatch::{CallResponse, OperationEntry};

/// Characters of a preview.
const PREVIEW: usize = 200;

/// Notes that a tool was called. A log that cannot be written fails no call.
pub(super) fn called(
    process: &Process,
    entry: &OperationEntry,
    args: &Map<String, Value>,
    response: &CallResponse,
    took: Duration,
) {
    let cx = &process.context;
    if let Some(log) = EventLog::for_session(cx.state().ok(), &cx.call.session) {
        log.add(tool(process, entry, args, response, took));
    }
}

fn tool(
    process: &Process,
    entry: &OperationEntry,
    args: &Map<String, Value>,
    response: &CallResponse,
    took: Duration,
) -> Map<String, Value> {
    let answer = &response.json;
    let value = answer.get("value").and_then(Value::as_object).unwrap_or(answer);
    let place = answer.get("workspace");
    let redactor = process.own_secrets();
    let path = ["file_path", "path", "cwd"].iter().find_map(|it| args.get(*it)).and_then(Value::as_str);
    let path = path.map(|it| shown(redactor, it));
    let exit = value.get("exit_code").or_else(|| value.get("exitCode")).cloned().unwrap_or_default();
    let mut event = json!({
        "event": "tool",
        "method": entry.name,
        "container": args.get(chosen_container::FIELD).and_then(Value::as_str).map(|it| shown(redactor, it)),
        "role": if entry.name == coracle_workspace::RunCode::NAME { "run" } else { "workspace" },
        "generation": place.and_then(|it| it.get("generation")).or_else(|| answer.get("generation")),
        "path": path,
        "duration_ms": millis(took),
        "exit_status": exit,
        "success": response.is_success(),
        "code": answer.get("code"),
        "bytes_out": response.text.as_deref().unwrap_or_default().len(),
    });
    let words: Vec<&str> =
        args.get("command").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if let Some((program, rest)) = words.split_first() {
        event["program"] = arguments::program(program).into();
        event["args_count"] = rest.len().into();
    }
    if let Some(stdout) = value.get("stdout").or_else(|| value.get("output")).and_then(Value::as_str) {
        let stderr = value.get("stderr").and_then(Value::as_str).unwrap_or_default();
        // Another container may have secrets, which only `exec.redact` takes out of its output.
        let is_own = !args.contains_key(chosen_container::FIELD);
        let previews = process.context.config.workspace.event_previews && is_own;
        event["stdout_preview"] = preview(previews, redactor, stdout);
        event["stderr_preview"] = preview(previews, redactor, stderr);
    }
    if args.contains_key("stdin") || args.contains_key("command") {
        let stdin = args.get("stdin").and_then(Value::as_str);
        event["stdin"] = stdin.map(|it| format!("<redacted {} bytes>", it.len())).into();
    }
    event.as_object().cloned().unwrap_or_default()
}

fn preview(is_shown: bool, redactor: &Redactor, text: &str) -> Value {
    if !is_shown {
        // Not with a hash: a reader could try guesses at a secret that was printed.
        return json!({ "bytes": text.len() });
    }
    shown(redactor, text).into()
}

/// The first characters of a text, without secrets and without what would do something to who reads them.
fn shown(redactor: &Redactor, text: &str) -> String {
    // A secret that the cut would halve is found before it.
    let begin: String = text.chars().take(8 * PREVIEW).collect();
    let (mut shown, mut left) = (String::new(), PREVIEW);
    for c in redactor.clean_strictly(&begin).chars() {
        let length = if is_deceptive(c) { c.escape_unicode().len() } else { 1 };
        if length > left {
            break;
        }
        left -= length;
        if is_deceptive(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

#[cfg(test)]
mod tests {
    use coracle_context::context::Context;
    use coracle_context::host_identity::secrets_of;

    use super::preview;

    #[test]
    fn w41_previews_are_short_escaped_and_without_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(dir.path());
        let mut host = (*cx.host).clone();
        host.env.insert("API_TOKEN".into(), "hunter2hunter2".to_owned().into());
        cx.host = host.into();
        let redactor = &secrets_of(&cx.host);
        let shown = preview(true, redactor, "a\u{1b}]52;c;x\u{7}\u{202e} hunter2hunter2");
        assert_eq!(shown, "a\\u{1b}]52;c;x\\u{7}\\u{202e} [redacted:API_TOKEN]");
        assert!(preview(true, redactor, &"x".repeat(1000)).as_str().unwrap().len() == 200);
        assert!(preview(true, redactor, &"\u{7}".repeat(1000)).as_str().unwrap().len() <= 200);
        assert_eq!(preview(false, redactor, "abc"), serde_json::json!({ "bytes": 3 }));
    }
}
