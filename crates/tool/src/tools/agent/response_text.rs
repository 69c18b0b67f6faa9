//! Answers as a model reads them: output as it is, then what has to be known, in brackets. No nulls, nothing twice.

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::dispatch::CallResponse;
use crate::document::ProgramOutput;
use crate::failure::Failure;
use crate::humanize::duration;

type Fields = Map<String, Value>;

/// The answer of that operation or tool.
pub(super) fn text_of(callee: &str, response: &CallResponse) -> String {
    let fields = &response.json;
    let text = match callee {
        "exec" => command(fields),
        "exec_background" => format!("[job {} started]", text(fields, "job_id")),
        "create" | "fork" | "restore" => created(fields),
        "forward" => text(fields, "url").to_owned(),
        _ => match (&response.response, &response.text) {
            (Some(response), _) => match document(&response.render(Timestamp::now())) {
                empty if empty.trim().is_empty() => "[done]".to_owned(),
                shown => shown,
            },
            (None, Some(text)) => return session_tool(callee, fields, text),
            (None, None) => plain(&Value::Object(fields.clone())),
        },
    };
    with_warnings(with_next_offset(callee, text, fields), fields)
}

/// A call that failed: why, what to do, and what its command had printed until then.
pub(in super::super) fn refused(failure: &Failure) -> String {
    let mut shown = failure.message.clone();
    if let Some(hint) = &failure.hint {
        shown.push_str(&format!("\n{hint}"));
    }
    for stream in ["stdout", "stderr"] {
        let printed = text(&failure.known, stream);
        if !printed.is_empty() {
            line_end(&mut shown);
            shown.push_str(&format!("[{stream} until then]\n{printed}"));
        }
    }
    shown
}

/// The next wait for a line begins where this one ended, so that it does not find the same line.
fn with_next_offset(callee: &str, mut shown: String, fields: &Fields) -> String {
    if callee == "job_wait" && fields.get("running") == Some(&Value::Bool(true)) {
        line_end(&mut shown);
        let next = fields.get("next_offset").and_then(Value::as_u64).unwrap_or_default();
        shown.push_str(&format!("[next offset {next}]"));
    }
    shown
}

/// The answer of a session tool, whose own text says some things twice.
fn session_tool(callee: &str, fields: &Fields, own: &str) -> String {
    if fields.get("success") == Some(&Value::Bool(false)) && fields.get("value").is_none_or(Value::is_null) {
        let code = text(fields, "code");
        let hint = hint(code).or_else(|| fields.get("hint").and_then(Value::as_str));
        return [own].into_iter().chain(hint).collect::<Vec<_>>().join("\n");
    }
    let value = fields.get("value").and_then(Value::as_object);
    let shown = match (callee, value) {
        ("write_file" | "edit_file", _) => text(fields, "message").to_owned(),
        ("read_file", Some(value)) => lines_of_file(value),
        ("evaluate_python", Some(value)) => python(value, text(fields, "message")),
        (name, Some(value)) if name.starts_with("workflow_") => plain(&Value::Object(value.clone())),
        _ => return own.to_owned(),
    };
    with_warnings(shown, fields)
}

/// What to do next, in the words of this toolset.
fn hint(code: &str) -> Option<&'static str> {
    Some(match code {
        "path_escape" => "file tools stay beneath the work directory; `shell` reaches the other files",
        "file_not_found" | "path_not_found" | "directory_not_found" | "nothing_matched" => "look with `find_files`",
        "is_a_directory" => "list it with `find_files`",
        "disk_full" => "remove what is not needed",
        "out_of_memory" => "do less at once, or `create` a container with more `memory_limit`",
        _ => return None,
    })
}

/// Numbered lines, and which these are unless they are all.
fn lines_of_file(value: &Fields) -> String {
    let number = |name: &str| value.get(name).and_then(Value::as_u64).unwrap_or_default();
    let mut shown = text(value, "content").to_owned();
    let (before, lines, all) = (number("offset"), number("limit"), number("total_lines"));
    if lines < all {
        line_end(&mut shown);
        shown.push_str(&format!("[lines {}-{} of {all}]", before + 1, before + lines));
    }
    if shown.is_empty() { "[the file is empty]".to_owned() } else { shown }
}

/// A container that is ready: what it is made of, and which steps worked.
pub(super) fn created(fields: &Fields) -> String {
    let steps = fields.get("provisioning_report").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let of_status = |wanted: &[&str]| {
        steps.iter().filter(|it| wanted.contains(&it["status"].as_str().unwrap_or_default())).collect::<Vec<_>>()
    };
    let worked: Vec<&str> = of_status(&["success"]).iter().filter_map(|it| it["name"].as_str()).collect();
    let ports = fields.get("ports").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let ports: Vec<String> =
        ports.iter().map(|it| format!("{}:{} -> {}", or_loopback(it), it["host"], it["container"])).collect();
    let mut lines = vec![format!(
        "{} is ready: image {}, user {}, work directory {}",
        text(fields, "container"),
        text(fields, "image"),
        text(fields, "user"),
        text(fields, "workdir")
    )];
    lines.extend((!ports.is_empty()).then(|| format!("ports: {}", ports.join(", "))));
    lines.extend((!worked.is_empty()).then(|| format!("worked: {}", worked.join(", "))));
    lines.extend(of_status(&["failed", "partial"]).into_iter().map(failed_step));
    lines.join("\n")
}

fn or_loopback(port: &Value) -> &str {
    port["address"].as_str().unwrap_or("127.0.0.1")
}

/// A step that failed, with the parts that did.
fn failed_step(step: &Value) -> String {
    let reason = |it: &Value| it["error"].as_str().or(it["detail"].as_str()).unwrap_or_default().to_owned();
    let items = step["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let failed = items.iter().filter(|it| it["status"] == "failed");
    let parts = failed.map(|it| format!("\n  {}: {}", it["name"].as_str().unwrap_or_default(), reason(it)));
    let name = step["name"].as_str().unwrap_or_default();
    format!("FAILED {name}: {}{}", reason(step), parts.collect::<String>())
}

/// What code printed, what it showed, which files it wrote, and what it raised.
fn python(value: &Fields, message: &str) -> String {
    let of_value = |name: &str| value.get(name).and_then(Value::as_array).into_iter().flatten();
    let mut shown = both_ends(value, "stdout");
    let outputs = of_value("outputs").filter_map(|it| match it["type"].as_str()? {
        "text/plain" | "text/markdown" | "text/latex" => it["text"].as_str().map(str::to_owned),
        // Its text is shown.
        "table" | "text/html" => None,
        other => Some(format!("[{other}, {} bytes]", it["bytes"])),
    });
    let files =
        of_value("files").filter_map(|it| Some(format!("[wrote {}, {} bytes]", it["path"].as_str()?, it["bytes"])));
    let lost = value.get("kernel").and_then(|it| it["lost"].as_str());
    let lost = lost.map(|why| format!("[the interpreter is gone ({why}): its variables are lost]"));
    for part in outputs.chain(files).chain(lost) {
        line_end(&mut shown);
        shown.push_str(&part);
    }
    let mut stderr = both_ends(value, "stderr");
    // The end of standard error has it, unless it is long or more was printed behind it.
    if let Some(raised) = message.strip_prefix(RAISED).map(|it| it.trim_end_matches('.'))
        && !stderr.contains(raised)
    {
        line_end(&mut stderr);
        stderr.extend(raised.chars().take(MAX_RAISED));
    }
    ended(shown, &stderr, value)
}

/// What stands before an exception in the message of a run.
const RAISED: &str = "Evaluation failed: ";

/// Characters of an exception.
const MAX_RAISED: usize = 500;

/// An end of fewer characters is all that the beginning lacks: 4 KiB of it are kept, and a character has at most four bytes.
const WHOLE: usize = 1024;

/// A stream of a run, of which the middle may be missing. Nothing keeps it.
fn both_ends(value: &Fields, stream: &str) -> String {
    let (start, end) = (text(value, stream), text(value, &format!("{stream}_tail")));
    let head = start.strip_suffix("...");
    match (end.chars().count(), head) {
        (0, _) => start.to_owned(),
        (1..WHOLE, Some(head)) => format!("{head}{end}"),
        _ => format!("{}\n[… cut; the rest is not kept …]\n{end}", head.unwrap_or(start)),
    }
}

/// What a command printed, and how it ended unless it just worked.
fn command(fields: &Fields) -> String {
    let [stdout, stderr] = ["stdout", "stderr"].map(|stream| with_call_for_rest(fields, stream));
    ended(stdout, &stderr, fields)
}

/// What is left out of a stream, read by a call of this toolset. In `job` an offset counts both streams together.
fn with_call_for_rest(fields: &Fields, stream: &str) -> String {
    let (shown, job, container) = (text(fields, stream), text(fields, "job_id"), text(fields, "container"));
    let operation = format!("; job_read job_id={job} stream={stream} offset=");
    let rest = shown.split_once(&operation).and_then(|(start, rest)| Some((start, rest.split_once(' ')?)));
    let Some((start, (offset, end))) = rest else { return shown.to_owned() };
    let call = format!(
        r#"{{"operation":"job_read","container":"{container}","job_id":"{job}","stream":"{stream}","offset":{offset}}}"#
    );
    format!("{start}: `containers` {call} {end}")
}

/// The same with standard error and the end.
fn ended(mut shown: String, stderr: &str, fields: &Fields) -> String {
    if !stderr.is_empty() {
        line_end(&mut shown);
        if !shown.is_empty() {
            shown.push_str("[stderr]\n");
        }
        shown.push_str(stderr);
    }
    let after = || duration(fields.get("duration_ms").and_then(Value::as_u64).unwrap_or_default());
    let flag = |name: &str| fields.get(name) == Some(&Value::Bool(true));
    let exit = fields.get("exit_code").and_then(Value::as_u64);
    let end = match exit {
        _ if flag("running") => Some(format!("[still running after {} as job {}]", after(), text(fields, "job_id"))),
        _ if flag("timed_out") => Some(format!("[ended at its time limit, after {}]", after())),
        Some(0) if !shown.is_empty() => None,
        Some(code) => match text(fields, "signal") {
            "" => Some(format!("[exit {code}]")),
            signal => Some(format!("[exit {code}, {signal}]")),
        },
        None => None,
    };
    if let Some(end) = end {
        line_end(&mut shown);
        shown.push_str(&end);
    }
    shown
}

fn line_end(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// A response as a person reads it, as one text.
fn document(document: &crate::document::Document) -> String {
    let mut shown = match &document.output {
        Some(ProgramOutput::Job(bytes)) => String::from_utf8_lossy(bytes).into_owned(),
        Some(ProgramOutput::Patch(text)) => text.clone(),
        Some(ProgramOutput::Command { stdout, .. }) => String::from_utf8_lossy(stdout).into_owned(),
        None => String::new(),
    };
    let blocks = document.to_string();
    // Notes name options of the command line.
    let notes = document.notes.iter().map(|it| format!("[{it}]").replace("`--offset`", "`offset`"));
    for part in [blocks].into_iter().chain(notes) {
        if !part.is_empty() {
            line_end(&mut shown);
            shown.push_str(&part);
        }
    }
    shown
}

fn with_warnings(mut shown: String, fields: &Fields) -> String {
    for warning in fields.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        line_end(&mut shown);
        shown.push_str(&format!("[warning: {}]", warning["message"].as_str().unwrap_or_default()));
    }
    shown
}

fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// JSON without what is unset.
fn plain(value: &Value) -> String {
    without_nulls(value).to_string()
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let set = fields.iter().filter(|it| !it.1.is_null());
            Value::Object(set.map(|(name, it)| (name.clone(), without_nulls(it))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{command, created, document, python, refused, with_next_offset};
    use crate::document::{Document, ProgramOutput};
    use crate::failure::{Code, Failure};

    fn fields(value: Value) -> super::Fields {
        let Value::Object(fields) = value else { panic!("{value} is no object") };
        fields
    }

    fn ran(more: Value) -> String {
        let mut answer = fields(json!({ "exit_code": 0, "stdout": "", "stderr": "", "duration_ms": 50_000 }));
        answer.extend(fields(more));
        command(&answer)
    }

    #[test]
    fn a_command_shows_what_it_printed_and_how_it_ended_unless_it_just_worked() {
        assert_eq!(ran(json!({})), "[exit 0]");
        assert_eq!(ran(json!({ "stdout": "hello\n" })), "hello\n");
        assert_eq!(ran(json!({ "exit_code": 1, "stderr": "no such file" })), "no such file\n[exit 1]");
        let both = ran(json!({ "stdout": "out", "stderr": "err\n", "exit_code": 2 }));
        assert_eq!(both, "out\n[stderr]\nerr\n[exit 2]");
        assert_eq!(ran(json!({ "exit_code": 137, "signal": "SIGKILL" })), "[exit 137, SIGKILL]");
        let running = json!({ "exit_code": null, "running": true, "timed_out": true, "job_id": "1f0c9a2e" });
        assert_eq!(ran(running), "[still running after 50.0 s as job 1f0c9a2e]");
        assert_eq!(ran(json!({ "exit_code": 124, "timed_out": true })), "[ended at its time limit, after 50.0 s]");
    }

    #[test]
    fn code_shows_its_last_expression_its_images_and_the_files_that_it_wrote() {
        let answer = json!({
            "exit_code": 0, "stdout": "hi\n", "stderr": "",
            "outputs": [
                { "type": "text/plain", "text": "   a\n0  1" }, { "type": "table", "columns": ["a"], "rows": [[1]] },
                { "type": "image/png", "bytes": 2100 },
            ],
            "files": [{ "path": "a.csv", "bytes": 12 }],
        });
        assert_eq!(python(&fields(answer), ""), "hi\n   a\n0  1\n[image/png, 2100 bytes]\n[wrote a.csv, 12 bytes]");
        assert_eq!(python(&fields(json!({ "exit_code": 0 })), ""), "[exit 0]");
    }

    #[test]
    fn code_that_prints_much_shows_both_ends_and_what_it_raised() {
        let told = |end: &str, message: &str| {
            let start = format!("Traceback{}...", "x".repeat(4084));
            let answer = json!({ "exit_code": 1, "stdout": "", "stderr": start, "stderr_tail": end });
            python(&fields(answer), message)
        };
        let failed = "Evaluation failed: ValueError: x.";
        let cut = told(&format!("{}\nValueError: x\n", "y".repeat(2034)), failed);
        assert!(cut.starts_with("Traceback") && cut.contains("x\n[… cut; the rest is not kept …]\ny"), "{cut}");
        assert!(cut.ends_with("y\nValueError: x\n[exit 1]"), "{cut}");
        let whole = told("y\nValueError: x\n", failed);
        assert!(whole.ends_with("xxy\nValueError: x\n[exit 1]"), "{whole}");
        let hidden = told(&"y".repeat(2048), failed);
        assert!(hidden.ends_with("yy\nValueError: x\n[exit 1]"), "{hidden}");
        let exited = told(&"y".repeat(2048), "Evaluation failed (exit code 1).");
        assert!(exited.ends_with("yy\n[exit 1]"), "{exited}");
    }

    #[test]
    fn what_is_left_out_is_read_by_calls_of_this_toolset() {
        let cut = ran(json!({
            "container": "web", "job_id": "1f0c9a2e",
            "stderr": "one\n[… 90 bytes left out; job_read job_id=1f0c9a2e stream=stderr offset=4 …]\ntwo",
        }));
        let call = r#"{"operation":"job_read","container":"web","job_id":"1f0c9a2e","stream":"stderr","offset":4}"#;
        assert_eq!(cut, format!("one\n[… 90 bytes left out: `containers` {call} …]\ntwo"));
        let page = Document::of_output(ProgramOutput::Job(b"hi".to_vec())).note("go on with `--offset` 99");
        assert_eq!(document(&page), "hi\n[go on with `offset` 99]");
        let waited = |running: bool| {
            let answer = fields(json!({ "running": running, "next_offset": 9 }));
            with_next_offset("job_wait", "up".to_owned(), &answer)
        };
        assert_eq!((waited(true).as_str(), waited(false).as_str()), ("up\n[next offset 9]", "up"));
    }

    #[test]
    fn a_call_that_fails_shows_what_its_command_had_printed() {
        let failure = Failure::new(Code::NotRunning, "`web` has ended").hint("start it");
        assert_eq!(refused(&failure), "`web` has ended\nstart it");
        let failure = failure.known("container", "web").known("stdout", "half\n").known("stderr", "");
        assert_eq!(refused(&failure), "`web` has ended\nstart it\n[stdout until then]\nhalf\n");
    }

    #[test]
    fn a_container_says_what_it_is_and_which_steps_failed() {
        let step = |name: &str, status: &str, more: Value| {
            let mut step = fields(json!({ "name": name, "status": status }));
            step.extend(fields(more));
            Value::Object(step)
        };
        let item = json!({ "name": "https://example.org/a.git", "status": "failed", "error": "no such repository" });
        let answer = json!({
            "container": "web", "image": "debian", "user": "0:0", "workdir": "/workspace",
            "ports": [{ "host": 49153, "container": 80, "address": "127.0.0.1" }],
            "provisioning_report": [
                step("user", "success", json!({})), step("repos", "failed", json!({ "error": "1 failed", "items": [item] })),
                step("dotfiles", "skipped", json!({})),
            ],
        });
        insta::assert_snapshot!(created(&fields(answer)), @r"
        web is ready: image debian, user 0:0, work directory /workspace
        ports: 127.0.0.1:49153 -> 80
        worked: user
        FAILED repos: 1 failed
          https://example.org/a.git: no such repository
        ");
    }
}
