//! Answers as text for people. Colours go to terminals only, and never where `NO_COLOR` is set.

mod tables;

use std::io::Write;

use anstyle::{AnsiColor, Style};
use serde_json::{Map, Value};

const GOOD: Style = AnsiColor::Green.on_default();
const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const NAME: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// Prints to standard output. A reader that has gone away has seen enough.
pub(crate) fn print(text: &str) {
    if !text.is_empty() {
        let _ = writeln!(anstream::stdout().lock(), "{text}");
    }
}

/// Prints to standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// A failed call, on standard error.
pub(crate) fn complain(answer: &Map<String, Value>) {
    note(&complaint(answer));
}

/// Warnings of an answer, on standard error.
pub(crate) fn warnings(answer: &Map<String, Value>) {
    for warning in list(answer, "warnings") {
        let (code, message) = (text(warning, "code"), text(warning, "message"));
        note(&format!("{DOUBTFUL}warning[{code}]{DOUBTFUL:#}: {message}"));
    }
}

fn complaint(answer: &Map<String, Value>) -> String {
    let answer = &Value::Object(answer.clone());
    let (code, message, hint) = (text(answer, "code"), text(answer, "message"), text(answer, "hint"));
    let mut lines = vec![format!("{BAD}error[{code}]{BAD:#}: {message}")];
    // The first problem is the message itself.
    let problems = answer["details"]["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
    for problem in problems.iter().skip(1) {
        let (field, message) = (text(problem, "field"), text(problem, "message"));
        lines.push(if field.is_empty() { format!("  {message}") } else { format!("  `{field}`: {message}") });
    }
    if !hint.is_empty() {
        lines.push(format!("{NAME}hint{NAME:#}: {hint}"));
    }
    lines.join("\n")
}

/// An answer that is no failure.
pub(crate) fn answer(operation: &str, answer: &Map<String, Value>) -> String {
    let answer = &Value::Object(answer.clone());
    match operation {
        "list" => tables::containers(answer),
        "preflight" => preflight(answer),
        "create" => created(answer),
        "destroy" => destroyed(answer),
        "exec_interactive_hint" => text(answer, "command"),
        _ => fields(answer),
    }
}

/// One line of the provisioning report.
pub(crate) fn step(step: &Value) -> String {
    let style = match text(step, "status").as_str() {
        "success" => GOOD,
        "skipped" => DIM,
        "partial" => DOUBTFUL,
        _ => BAD,
    };
    let error = match text(step, "error").as_str() {
        "" => String::new(),
        error => format!(" ({error})"),
    };
    format!("{style}{:>8}{style:#} {}: {}{error}", text(step, "status"), text(step, "name"), text(step, "detail"))
}

fn preflight(answer: &Value) -> String {
    let mut lines = Vec::new();
    for check in list_of(answer, "checks") {
        let status = text(check, "status");
        let style = match status.as_str() {
            "pass" => GOOD,
            "warn" => DOUBTFUL,
            "fail" => BAD,
            _ => DIM,
        };
        lines.push(format!("{style}{status:>4}{style:#} {}: {}", text(check, "name"), text(check, "detail")));
        let guidance = text(check, "guidance");
        lines.extend(guidance.lines().map(|line| format!("       {line}")));
    }
    let style = if answer["ready"] == true { GOOD } else { BAD };
    lines.push(match text(answer, "summary").as_str() {
        "" => fields(answer),
        summary => format!("{style}{summary}{style:#}"),
    });
    lines.join("\n")
}

fn created(answer: &Value) -> String {
    let mut lines = vec![format!("{NAME}{}{NAME:#} {}", text(answer, "container"), text(answer, "container_id"))];
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            lines.push(format!("  {name:<8} {value}"));
        }
    };
    line("image", &format!("{} ({})", text(answer, "image"), text(answer, "image_source")));
    line("user", &text(answer, "user"));
    line("workdir", &text(answer, "workdir"));
    for port in list_of(answer, "ports") {
        line("port", &format!("{}:{} -> {}", text(port, "address"), port["host"], port["container"]));
    }
    for entry in list_of(answer, "provisioning_report").iter().filter(|it| text(it, "status") != "skipped") {
        lines.push(format!("  {}", step(entry)));
    }
    let shell = text(answer, "coracle_command");
    if !shell.is_empty() {
        lines.push(format!("{DIM}open a shell in it: {shell}{DIM:#}"));
    }
    lines.join("\n")
}

fn destroyed(answer: &Value) -> String {
    let gone = if answer["already_gone"] == true { "was gone already" } else { "destroyed" };
    let mut lines = vec![format!("{NAME}{}{NAME:#} {gone}", text(answer, "container"))];
    for entry in list_of(answer, "review") {
        lines.push(format!("  {DOUBTFUL}review{DOUBTFUL:#} {} ({})", text(entry, "path"), text(entry, "change")));
    }
    lines.join("\n")
}

/// Every field on a line of its own.
fn fields(answer: &Value) -> String {
    let told = |(name, value): (&String, &Value)| match value {
        Value::Null => None,
        Value::Array(items) if items.is_empty() => None,
        Value::String(text) => Some(format!("{DIM}{name}:{DIM:#} {}", plain(text))),
        other => Some(format!("{DIM}{name}:{DIM:#} {other}")),
    };
    let object = answer.as_object().into_iter().flatten();
    object
        .filter(|(name, _)| !["success", "warnings"].contains(&name.as_str()))
        .filter_map(told)
        .collect::<Vec<_>>()
        .join("\n")
}

fn list<'a>(answer: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    answer.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn list_of<'a>(answer: &'a Value, key: &str) -> &'a [Value] {
    answer[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A text field. What comes out of a container or an engine must not steer the person's terminal.
fn text(value: &Value, key: &str) -> String {
    plain(value[key].as_str().unwrap_or_default())
}

fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::{Value, json};

    fn check(operation: &str, answer: Value) -> String {
        let Value::Object(answer) = answer else { panic!("no object") };
        let text =
            if answer["success"] == true { super::answer(operation, &answer) } else { super::complaint(&answer) };
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn failures_are_told_with_what_to_do() {
        let answer = json!({ "success": false, "code": "invalid_input", "message": "`a`: bad", "hint": "mend it",
            "details": { "problems": [{ "field": "a", "message": "bad" }, { "field": "b", "message": "worse" }] } });
        assert_snapshot!(check("exec", answer), @r"
        error[invalid_input]: `a`: bad
          `b`: worse
        hint: mend it
        ");
    }

    #[test]
    fn answers_are_told_in_lines() {
        let answer = json!({ "success": true, "container": "web", "container_id": "0123", "image": "ubuntu:24.04",
            "image_source": "local", "user": "1000:1000", "workdir": "/workspace", "coracle_command": "coracle shell web",
            "ports": [{ "address": "127.0.0.1", "host": 8080, "container": 80 }],
            "provisioning_report": [{ "name": "user", "status": "success", "detail": "1000:1000" },
                { "name": "setup", "status": "failed", "detail": "1 of 1", "error": "exit 1" },
                { "name": "git", "status": "skipped", "detail": "" }] });
        assert_snapshot!(check("create", answer), @r"
        web 0123
          image    ubuntu:24.04 (local)
          user     1000:1000
          workdir  /workspace
          port     127.0.0.1:8080 -> 80
           success user: 1000:1000
            failed setup: 1 of 1 (exit 1)
        open a shell in it: coracle shell web
        ");
        assert_snapshot!(check("status", json!({ "success": true, "running": true, "exit_code": null, "image": "x\u{1b}[2J" })), @r"
        image: x�[2J
        running: true
        ");
        assert_snapshot!(check("destroy", json!({ "success": true, "container": "web", "already_gone": false })), @"web destroyed");
    }

    #[test]
    fn checks_are_told_with_guidance() {
        let answer = json!({ "success": true, "ready": false, "summary": "1 checks failed: daemon_running", "checks": [
            { "name": "runtime_installed", "status": "pass", "detail": "docker", "guidance": null },
            { "name": "daemon_running", "status": "fail", "detail": "no answer", "guidance": "sudo systemctl start docker\nor so" }] });
        assert_snapshot!(check("preflight", answer), @r"
        pass runtime_installed: docker
        fail daemon_running: no answer
               sudo systemctl start docker
               or so
        1 checks failed: daemon_running
        ");
    }

    #[test]
    fn containers_are_a_table() {
        let row = |name: &str, status: &str| {
            json!({ "name": name, "status": status, "image": "ubuntu:24.04", "ports": "",
            "created": "2026-11-21T10:00:00.000Z", "session": "default" })
        };
        let answer =
            json!({ "success": true, "containers": [row("web", "running"), row("db", "exited")], "unverified": ["x"] });
        assert_snapshot!(check("list", answer), @r"
        NAME  STATUS   IMAGE         PORTS  CREATED           SESSION
        web   running  ubuntu:24.04         2026-11-21 10:00  default
        db    exited   ubuntu:24.04         2026-11-21 10:00  default
        unverified x: it carries our label without proof; nothing acts on it
        ");
        assert_snapshot!(check("list", json!({ "success": true, "containers": [] })), @"no containers");
    }
}
