//! Jobs: how they stand, what of their output matched.

use coracle::humanize::bytes;
use serde_json::Value;

use super::humanize::{ago, took};
use super::table::{View, fixed, flexible, lines};
use super::{BAD, DIM, DOUBTFUL, GOOD, NAME, list_of, text};

/// The jobs of `jobs`.
pub(super) fn table(answer: &Value, view: View) -> String {
    let row = |row: &Value| {
        let started = ago(&text(row, "started_at"), view.now);
        let output = bytes(row["total_bytes"].as_u64().unwrap_or(0));
        vec![text(row, "job_id"), text(row, "container"), state(row), started, output, command(row)]
    };
    let columns = [
        fixed("JOB"),
        flexible("CONTAINER"),
        fixed("STATE"),
        fixed("STARTED").or_left_out(1),
        fixed("OUTPUT").or_left_out(2),
        flexible("COMMAND"),
    ];
    match list_of(answer, "jobs") {
        [] => "no jobs; `coracle exec-background` starts one".to_owned(),
        rows => lines(&columns, rows.iter().map(row).collect(), view).join("\n"),
    }
}

/// One line, of which a table shows the beginning.
fn command(row: &Value) -> String {
    let line = text(row, "command").split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}

/// `running`, `exited 3`, `timed out`.
fn state(row: &Value) -> String {
    let state = super::words(&text(row, "state"));
    match (row["exit_code"].as_u64(), row["signal"].as_str()) {
        (_, Some(signal)) if state == "exited" => format!("ended by {}", super::plain(signal)),
        (Some(code), _) if state == "exited" => format!("exited {code}"),
        _ => state,
    }
}

/// How a job stands, behind its output.
pub(super) fn state_line(answer: &Value) -> String {
    let state = state(answer);
    let style = match text(answer, "state").as_str() {
        "running" => GOOD,
        "exited" if answer["exit_code"] == 0 => GOOD,
        "exited" => BAD,
        _ => DOUBTFUL,
    };
    let after = || took(answer["waited_ms"].as_u64().unwrap_or(0));
    let reason = match text(answer, "reason").as_str() {
        "regex" => format!(": line {} matches", answer["match"]["line"]),
        "port" => format!(": the port answers after {}", after()),
        "idle" => format!(": silent after {}", after()),
        "timeout" => format!(": {DOUBTFUL}still waiting after {}{DOUBTFUL:#}", after()),
        _ => String::new(),
    };
    format!("{NAME}{}{NAME:#} {style}{state}{style:#}{reason}", text(answer, "job_id"))
}

/// Where the next page begins.
pub(super) fn rest(answer: &Value) -> Option<String> {
    let number = |key: &str| answer[key].as_u64().unwrap_or(0);
    let (next, total) = (number("next_offset"), number("total_bytes"));
    let more = total.saturating_sub(next);
    (more > 0).then(|| format!("{DIM}{} more; go on with `--offset {next}`{DIM:#}", bytes(more)))
}

/// Lines that match, as `grep -n -C` shows them.
pub(super) fn matches(answer: &Value) -> String {
    let found = list_of(answer, "matches");
    if found.is_empty() {
        return "no line matches".to_owned();
    }
    let mut lines: Vec<String> = Vec::new();
    for (at, it) in found.iter().enumerate() {
        let (before, after) = (list_of(it, "before"), list_of(it, "after"));
        if at > 0 && !(before.is_empty() && after.is_empty()) {
            lines.push("--".to_owned());
        }
        let number = it["line"].as_u64().unwrap_or(0);
        let context = |number: u64, line: &Value| {
            format!("{DIM}{number}-{DIM:#}{}", super::plain(line.as_str().unwrap_or_default()))
        };
        let first = number.saturating_sub(before.len() as u64);
        lines.extend(before.iter().zip(first..).map(|(line, number)| context(number, line)));
        lines.push(format!("{DIM}{number}:{DIM:#}{}", text(it, "text")));
        lines.extend(after.iter().zip(number.saturating_add(1)..).map(|(line, number)| context(number, line)));
    }
    if answer["truncated"] == true {
        lines.push(format!("{DIM}there are more; go on with `--offset {}`{DIM:#}", answer["next_offset"]));
    }
    lines.join("\n")
}

/// A job that had to be ended, or had ended.
pub(super) fn cancelled(answer: &Value) -> String {
    let id = text(answer, "job_id");
    if answer["cancelled"] != true {
        return format!("{NAME}{id}{NAME:#} had ended already: {}", state(answer));
    }
    let left = match answer["tree_ended"].as_bool() {
        Some(false) => format!("; {DOUBTFUL}some of its processes could not be ended{DOUBTFUL:#}"),
        _ => String::new(),
    };
    format!("{NAME}{id}{NAME:#} ended{left}")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::{Value, json};

    use crate::render::bare;
    use crate::render::table::View;

    #[test]
    fn jobs_are_a_table() {
        let row = |id: &str, state: &str, code: Value, command: &str| {
            json!({ "job_id": id, "container": "web", "state": state, "exit_code": code, "total_bytes": 1536,
                "started_at": "2026-11-21T10:00:00.000Z", "command": command })
        };
        let answer = json!({ "jobs": [row("0123abcd", "running", Value::Null, "make\nserve"),
            row("4567abcd", "exited", json!(3), &"x".repeat(70)), row("89ababcd", "timed_out", json!(124), "sleep 9")] });
        let view = View::at("2026-11-21T12:30:00Z");
        assert_snapshot!(bare(&super::table(&answer, view)), @r"
        JOB       CONTAINER  STATE      STARTED  OUTPUT   COMMAND
        0123abcd  web        running    2 h ago  1.5 KiB  make serve
        4567abcd  web        exited 3   2 h ago  1.5 KiB  xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
        89ababcd  web        timed out  2 h ago  1.5 KiB  sleep 9
        ");
        assert_snapshot!(super::table(&json!({ "jobs": [] }), view), @"no jobs; `coracle exec-background` starts one");
    }

    #[test]
    fn a_job_is_told_in_a_line() {
        let told = |answer: Value| bare(&super::state_line(&answer));
        assert_snapshot!(told(json!({ "job_id": "0123abcd", "state": "running" })), @"0123abcd running");
        assert_snapshot!(told(json!({ "job_id": "0123abcd", "state": "exited", "exit_code": 139, "signal": "SEGV", "reason": "exit" })), @"0123abcd ended by SEGV");
        assert_snapshot!(told(json!({ "job_id": "0123abcd", "state": "running", "reason": "regex", "match": { "line": 7 } })), @"0123abcd running: line 7 matches");
        assert_snapshot!(told(json!({ "job_id": "0123abcd", "state": "running", "reason": "timeout", "waited_ms": 1500 })), @"0123abcd running: still waiting after 1.5 s");
    }

    #[test]
    fn matches_look_as_those_of_grep_and_cannot_steer_a_terminal() {
        let one = json!({ "line": 7, "text": "boom\u{1b}[2J", "before": ["a", "b"], "after": ["c"] });
        let answer = json!({ "matches": [one], "truncated": true, "next_offset": 99 });
        assert_snapshot!(bare(&super::matches(&answer)), @r"
        5-a
        6-b
        7:boom�[2J
        8-c
        there are more; go on with `--offset 99`
        ");
        assert_snapshot!(super::matches(&json!({ "matches": [] })), @"no line matches");
    }

    #[test]
    fn the_rest_and_the_end_are_told() {
        assert_eq!(super::rest(&json!({ "next_offset": 5, "total_bytes": 5 })), None);
        let rest = super::rest(&json!({ "next_offset": 5, "total_bytes": 7 })).unwrap();
        assert_snapshot!(bare(&rest), @"2 bytes more; go on with `--offset 5`");
        let ended = json!({ "job_id": "0123abcd", "cancelled": true, "tree_ended": true, "state": "cancelled" });
        assert_snapshot!(bare(&super::cancelled(&ended)), @"0123abcd ended");
        let before = json!({ "job_id": "0123abcd", "cancelled": false, "state": "exited", "exit_code": 3 });
        assert_snapshot!(bare(&super::cancelled(&before)), @"0123abcd had ended already: exited 3");
    }
}
