//! The trail of what was done.

use coracle::document::Column;
use coracle::humanize::count;
use serde_json::Value;

use super::table::{self, View};
use super::{list_of, text};
use coracle::humanize::duration as took;

const COLUMNS: &[Column] = &[
    Column::fixed("TIME"),
    Column::flexible("WHO").or_left_out(2),
    Column::flexible("OPERATION"),
    Column::flexible("CONTAINER"),
    Column::flexible("OUTCOME"),
    Column::fixed("TOOK").or_left_out(1),
];

/// The acts of `audit log`, oldest first.
pub(super) fn log(answer: &Value, view: View) -> String {
    let acts = list_of(answer, "acts");
    if acts.is_empty() {
        return "nothing of the kind is in the trail".to_owned();
    }
    let mut rows = Vec::new();
    for act in acts {
        let who = format!("{}/{}", text(act, "by"), text(act, "session"));
        let took = act["duration_ms"].as_u64().map(took).unwrap_or_default();
        let row = [seconds(&text(act, "time")), who, operation(act), text(act, "container"), outcome(act), took];
        rows.push(row.to_vec());
    }
    let mut lines = table::lines(COLUMNS, rows, view);
    let older = answer["older"].as_u64().unwrap_or(0);
    if older > 0 {
        lines.push(format!("{} left out; `-n` shows more", count(older, "older act is", "older acts are")));
    }
    lines.join("\n")
}

/// Fractions of a second say nothing to a reader.
fn seconds(time: &str) -> String {
    let cut = time.split_once('.').map_or(time, |it| it.0);
    cut.trim_end_matches('Z').replace('T', " ")
}

/// With the first word of a command: the rest of it is not in the trail.
fn operation(act: &Value) -> String {
    let first = text(&act["args"]["command"], "first");
    let operation = text(act, "operation");
    if first.is_empty() { operation } else { format!("{operation} {first} …") }
}

fn outcome(act: &Value) -> String {
    let (code, rule) = (text(act, "code"), text(act, "rule"));
    let by_person = if act["allowed_by"] == "person" { " (allowed at the command line)" } else { "" };
    let outcome = match (act["outcome"].as_str(), act["exit_code"].as_u64()) {
        (Some("done"), Some(exit)) if exit > 0 => format!("exit {exit}"),
        (Some("denied"), _) if !rule.is_empty() => format!("denied: {rule}"),
        (Some("failed" | "denied"), _) => code,
        (Some(other), _) => other.to_owned(),
        (None, _) => String::new(),
    };
    format!("{outcome}{by_person}")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    #[test]
    fn a_line_says_who_did_what_to_what_and_how_it_went() {
        let act = |more: serde_json::Value| {
            let mut act = json!({ "time": "2026-11-23T19:05:13.231196726Z", "session": "default", "by": "cli",
                "operation": "exec", "container": "web", "args": {}, "outcome": "done", "code": null, "rule": null,
                "exit_code": null, "duration_ms": 1234 });
            act.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            act
        };
        let acts = [
            act(json!({ "operation": "create" })),
            act(json!({ "args": { "command": { "first": "make" } }, "exit_code": 2 })),
            act(json!({ "operation": "copy_in", "outcome": "denied", "rule": "copy.root", "code": "policy_denied" })),
            act(json!({ "operation": "copy_in", "allowed_by": "person" })),
            act(json!({ "outcome": "unfinished", "duration_ms": null })),
        ];
        assert_snapshot!(super::log(&json!({ "acts": acts, "older": 1 }), super::View::at("2026-11-23T20:00:00Z")), @r"
        TIME                 WHO          OPERATION    CONTAINER  OUTCOME                             TOOK
        2026-11-23 19:05:13  cli/default  create       web        done                                1.2 s
        2026-11-23 19:05:13  cli/default  exec make …  web        exit 2                              1.2 s
        2026-11-23 19:05:13  cli/default  copy_in      web        denied: copy.root                   1.2 s
        2026-11-23 19:05:13  cli/default  copy_in      web        done (allowed at the command line)  1.2 s
        2026-11-23 19:05:13  cli/default  exec         web        unfinished
        1 older act is left out; `-n` shows more
        ");
    }
}
