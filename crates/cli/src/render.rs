//! Answers as text for users. Only terminals get colours, unless `NO_COLOR` is set.

mod layout;
mod table;
mod worktrees;

use std::io::Write;
use std::time::Duration;

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use coracle_context::document::sanitize as plain;
use coracle_context::humanize::{duration, millis};
use serde_json::{Map, Value};

pub(crate) use self::layout::Layout;
pub(crate) use self::table::{View, lines as table_lines};
use crate::stdio::{write_stderr, write_stdout};

const GOOD: Style = AnsiColor::Green.on_default();
const DOUBTFUL: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default().bold();
const NAME: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();

/// Prints a line to standard output.
pub(crate) fn print(text: &str) {
    if !text.is_empty() {
        let line = format!("{text}\n");
        let line = match AutoStream::choice(&std::io::stdout()) {
            ColorChoice::Never => strip_str(&line).to_string(),
            _ => line,
        };
        let _ = write_stdout(line.as_bytes());
    }
}

/// Prints the output of a program unchanged.
pub(crate) fn printed(stdout: &str, stderr: &str) {
    let _ = write_stdout(stdout.as_bytes());
    let _ = write_stderr(stderr.as_bytes());
}

/// Prints to standard error.
pub(crate) fn note(text: &str) {
    let _ = writeln!(anstream::stderr().lock(), "{text}");
}

/// The answer of `coracle worktree log` or `coracle worktree open`.
pub(crate) fn worktree(verb: &str, answer: &Value) -> String {
    if verb == "log" { worktrees::log(answer, jiff::Timestamp::now()) } else { worktrees::opened(answer) }
}

/// Prints a failed call to standard error.
pub(crate) fn complain(answer: &Map<String, Value>) {
    note(&complaint(answer));
}

/// Prints the warnings of an answer to standard error. `no_guest` applies to every container of this build, so only
/// `preflight` reports it. The report of `create` names a substitute image.
pub(crate) fn warnings(answer: &Map<String, Value>) {
    let warnings = answer.get("warnings").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_reported = answer.contains_key("provisioning_report");
    let is_news = |it: &&Value| it["code"] != "no_guest" && (!is_reported || it["code"] != "bootstrap_image");
    for warning in warnings.iter().filter(is_news) {
        let (code, message) = (text(warning, "code"), text(warning, "message"));
        note(&format!("{DOUBTFUL}warning[{code}]{DOUBTFUL:#}: {message}"));
    }
}

/// Prints a note to standard error. The last line of the other stream may be incomplete.
pub(crate) fn note_behind_output(text: &str, ended: bool) {
    note(&on_its_own_line(text, ended));
}

fn on_its_own_line(line: &str, ended: bool) -> String {
    if ended { line.to_owned() } else { format!("\n{line}") }
}

/// Prints the duration of a command to standard error, with its exit code if that is not 0.
pub(crate) fn ran(exit_code: Option<u8>, took: Duration, ended: bool) {
    let took = duration(millis(took));
    let line = match exit_code {
        None | Some(0) => format!("{DIM}({took}){DIM:#}"),
        Some(code) => format!("{DIM}(exit code {code}, {took}){DIM:#}"),
    };
    note(&on_its_own_line(&line, ended));
}

fn complaint(answer: &Map<String, Value>) -> String {
    let answer = &Value::Object(answer.clone());
    let (code, message, hint) = (text(answer, "code"), text(answer, "message"), text(answer, "hint"));
    let mut lines = vec![format!("{BAD}error[{code}]{BAD:#}: {message}")];
    // The message is the first problem.
    let problems = answer["details"]["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
    for problem in problems.iter().skip(1) {
        let (field, message) = (text(problem, "field"), text(problem, "message"));
        lines.push(if field.is_empty() { format!("  {message}") } else { format!("  `{field}`: {message}") });
    }
    for result in list_of(answer, "results").iter().filter(|it| it["success"] == false) {
        lines.push(format!("  `{}`: {}", text(result, "container"), text(result, "error")));
    }
    lines.extend(conflicts(answer));
    lines.extend(text(answer, "last_error").lines().map(|line| format!("  {line}")));
    for left in list_of(&answer["details"], "left") {
        lines.push(format!("  not undone: {}", plain(left.as_str().unwrap_or_default())));
    }
    if !hint.is_empty() {
        let mut hint = hint.lines();
        lines.extend(hint.next().map(|first| format!("{NAME}hint{NAME:#}: {first}")));
        lines.extend(hint.map(|more| format!("      {more}")));
    }
    lines.join("\n")
}

/// The host files with conflicts.
fn conflicts(answer: &Value) -> Vec<String> {
    let conflicts = list_of(&answer["details"], "conflicts").iter();
    conflicts
        .map(|it| {
            let path = it["path"].as_str().unwrap_or_default().escape_debug().to_string();
            format!("  `{path}`: {}", text(it, "reason"))
        })
        .collect()
}

/// Prints a patch. A pipe gets it unchanged, because the text may contain colours.
pub(crate) fn print_patch(patch: &str, terminal: bool) {
    if terminal {
        print(&plain(patch));
    } else if !patch.is_empty() {
        printed(&format!("{patch}\n"), "");
    }
}

/// Facts below a heading, with names in one column. Facts without a value are left out.
fn facts(facts: &[(&str, String)]) -> Vec<String> {
    let facts: Vec<_> = facts.iter().filter(|it| !it.1.is_empty()).collect();
    let width = facts.iter().map(|it| it.0.len()).max().unwrap_or(0);
    facts.iter().map(|(name, value)| format!("  {DIM}{name:<width$}{DIM:#}  {value}")).collect()
}

fn list_of<'a>(answer: &'a Value, key: &str) -> &'a [Value] {
    answer[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A text field. Output of containers and engines must not control the user's terminal.
fn text(value: &Value, key: &str) -> String {
    plain(value[key].as_str().unwrap_or_default())
}

/// The form for a pipe.
#[cfg(test)]
fn bare(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::{Value, json};

    fn check(answer: Value) -> String {
        let Value::Object(answer) = answer else { panic!("no object") };
        super::bare(&super::complaint(&answer))
    }

    #[test]
    fn failures_are_rendered_with_their_hints() {
        let answer = json!({ "success": false, "code": "invalid_input", "message": "`a`: bad", "hint": "fix it\nor so",
            "details": { "problems": [{ "field": "a", "message": "bad" }, { "field": "b", "message": "worse" }] } });
        assert_snapshot!(check(answer), @r"
        error[invalid_input]: `a`: bad
          `b`: worse
        hint: fix it
              or so
        ");
    }

    #[test]
    fn a_patch_is_harmless_on_a_terminal() {
        let patch = "-a\n+\u{1b}]52;c;x\u{7}\u{202e}";
        assert_eq!(super::plain(patch), "-a\n+\u{fffd}]52;c;x\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_notice_begins_on_a_line_of_its_own() {
        assert_eq!(super::on_its_own_line("more", true), "more");
        assert_eq!(super::on_its_own_line("more", false), "\nmore");
    }

    #[test]
    fn leftovers_are_reported() {
        let answer = json!({ "success": false, "code": "partial", "message": "1 of 2", "details": { "left": ["the network"] },
            "results": [{ "success": true, "container": "a" }, { "success": false, "container": "b", "error": "stuck" }] });
        assert_snapshot!(check(answer), @r"
        error[partial]: 1 of 2
          `b`: stuck
          not undone: the network
        ");
    }
}
