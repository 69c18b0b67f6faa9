//! What became of a workspace, as text.

use std::fmt::Write as _;

use coracle::humanize::{count, is_bidirectional};
use serde_json::Value;

use super::{DIM, DOUBTFUL, list_of, text};

/// All differences, as `git apply` reads them. For a terminal nothing in them steers it.
pub(super) fn diff(answer: &Value, terminal: bool) -> String {
    let diffs = list_of(answer, "files").iter().filter_map(|it| it["diff"].as_str());
    let all: String = diffs.collect();
    let all = all.trim_end_matches('\n');
    if terminal { harmless(all) } else { all.to_owned() }
}

/// What a difference does not tell.
pub(super) fn notes(answer: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for file in list_of(answer, "files").iter().filter(|it| it["note"].is_string()) {
        lines.push(format!(
            "{} `{}`: no difference is shown: {}",
            text(file, "change"),
            name(file),
            text(file, "note")
        ));
    }
    lines.extend(passed(answer));
    lines
}

pub(super) fn exported(answer: &Value) -> String {
    let files = answer["files"].as_u64().unwrap_or(0);
    let bytes = answer["bytes"].as_u64().unwrap_or(0);
    format!("{}, {} in {}", count(files, "file", "files"), count(bytes, "byte", "bytes"), text(answer, "path"))
}

pub(super) fn applied(answer: &Value) -> String {
    let files = list_of(answer, "files");
    if files.is_empty() {
        return "Nothing to bring back.".into();
    }
    let mut told = String::new();
    for file in files {
        let _ = writeln!(told, "{DIM}{:<8}{DIM:#} {}", text(file, "change"), name(file));
    }
    told + &format!("Brought back {}.", count(files.len() as u64, "file", "files"))
}

/// What stayed inside.
pub(super) fn passed(answer: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    for it in list_of(answer, "protected").iter().filter_map(Value::as_str) {
        lines.push(format!(
            "{DOUBTFUL}not brought back{DOUBTFUL:#} `{}`: a protected name; `--protected` takes it along",
            harmless(&it.escape_debug().to_string())
        ));
    }
    for it in list_of(answer, "passed_over") {
        lines.push(format!("{DIM}passed over{DIM:#} `{}`: {}", name(it), text(it, "reason")));
    }
    lines
}

/// Each file of the host that is in the way.
pub(super) fn conflicts(answer: &Value) -> Vec<String> {
    let conflicts = list_of(&answer["details"], "conflicts").iter();
    conflicts.map(|it| format!("  `{}`: {}", name(it), text(it, "reason"))).collect()
}

/// One line, whatever the file is called.
fn name(file: &Value) -> String {
    harmless(&file["path"].as_str().unwrap_or_default().escape_debug().to_string())
}

fn harmless(text: &str) -> String {
    let odd = |c: char| (c.is_control() && c != '\n' && c != '\t') || is_bidirectional(c);
    text.chars().map(|c| if odd(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use super::*;
    use crate::render::bare;

    #[test]
    fn a_difference_is_whole_in_a_pipe_and_harmless_on_a_terminal() {
        let answer =
            json!({ "files": [{ "path": "a", "change": "changed", "diff": "-a\n+\u{1b}]52;c;x\u{7}\u{202e}\n" }] });
        assert_eq!(diff(&answer, false), "-a\n+\u{1b}]52;c;x\u{7}\u{202e}");
        assert_eq!(diff(&answer, true), "-a\n+\u{fffd}]52;c;x\u{fffd}\u{fffd}");
    }

    #[test]
    fn what_was_brought_back_and_what_was_not_is_told() {
        let answer = json!({
            "files": [{ "path": "a.py", "change": "changed" }, { "path": "b\n", "change": "deleted" }],
            "protected": [".git/config"], "passed_over": [{ "path": "l", "reason": "it is a link" }],
        });
        let all = format!("{}\n{}", applied(&answer), passed(&answer).join("\n"));
        assert_snapshot!(bare(&all), @r"
        changed  a.py
        deleted  b\n
        Brought back 2 files.
        not brought back `.git/config`: a protected name; `--protected` takes it along
        passed over `l`: it is a link
        ");
    }
}
