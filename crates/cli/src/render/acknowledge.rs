//! What was copied, ended or removed.

use coracle::humanize::{bytes, count};
use serde_json::Value;

use super::humanize::took;
use super::{DOUBTFUL, Marks, NAME, list_of, plain, text};

/// Files that went in.
pub(super) fn copied_in(call: &Value, answer: &Value, marks: &Marks) -> String {
    copied(answer, &format!("{}:{}", text(call, "container"), text(answer, "container_path")), marks)
}

/// Files that came out.
pub(super) fn copied_out(call: &Value, answer: &Value, marks: &Marks) -> String {
    let from = format!("{}:{}", text(call, "container"), text(answer, "container_path"));
    copied(answer, &format!("{} from {from}", text(answer, "host_path")), marks)
}

fn copied(answer: &Value, to: &str, marks: &Marks) -> String {
    let number = |key: &str| answer[key].as_u64().unwrap_or(0);
    let mut what = vec![count(number("files"), "file", "files")];
    if number("dirs") > 0 {
        what.push(count(number("dirs"), "directory", "directories"));
    }
    let mut lines = vec![format!("copied {} ({}) to {to}", what.join(" and "), bytes(number("bytes")))];
    lines.extend(left_out(list_of(answer, "skipped"), marks));
    lines.join("\n")
}

/// What did not travel: the first few, and how many there are.
fn left_out(skipped: &[Value], marks: &Marks) -> Vec<String> {
    let mark = marks.of_status("partial");
    let line = |it: &Value| format!("{mark} left out `{}`: {}", text(it, "path"), text(it, "reason"));
    let mut lines: Vec<String> = skipped.iter().take(SHOWN).map(line).collect();
    let more = skipped.len().saturating_sub(SHOWN);
    if more > 0 {
        lines.push(format!("{mark} left out {more} more; `--json` names them all"));
    }
    lines
}

/// Parts of a copy that are named when they were left out.
const SHOWN: usize = 5;

/// One container.
pub(super) fn destroyed(answer: &Value) -> String {
    let gone = became(answer);
    let project = text(answer, "compose_project");
    let stack = if project.is_empty() { String::new() } else { format!(", with the services of the stack {project}") };
    let mut lines = vec![format!("{NAME}{}{NAME:#} {gone}{stack}", text(answer, "container"))];
    lines.extend(super::saved::lines(answer));
    for entry in list_of(answer, "review") {
        lines.push(format!("  {DOUBTFUL}review{DOUBTFUL:#} {} ({})", text(entry, "path"), text(entry, "change")));
    }
    lines.join("\n")
}

fn became(answer: &Value) -> &'static str {
    match text(answer, "detail").as_str() {
        _ if answer["already_gone"] == true => "was gone already",
        detail if detail.starts_with("Forgotten") => "is forgotten: it was adopted, and is left as it is",
        _ => "destroyed",
    }
}

/// One that became ready.
pub(super) fn healthy(answer: &Value) -> String {
    let attempts = count(answer["attempts"].as_u64().unwrap_or(0), "attempt", "attempts");
    let took = took(answer["duration_ms"].as_u64().unwrap_or(0));
    format!("{NAME}{}{NAME:#} is healthy, after {attempts} in {took}", text(answer, "container"))
}

/// A network that was made or removed, or was so before.
pub(super) fn network(answer: &Value, before: &str) -> String {
    let name = text(answer, "network");
    match (&answer["created"], &answer["removed"]) {
        (Value::Bool(true), _) if answer["internal"] == true => {
            format!("{NAME}{name}{NAME:#} created, without a way out")
        }
        (Value::Bool(true), _) => format!("{NAME}{name}{NAME:#} created"),
        (_, Value::Bool(true)) => format!("{NAME}{name}{NAME:#} removed"),
        _ => format!("{NAME}{name}{NAME:#} {before}"),
    }
}

/// All of a session.
pub(super) fn all_destroyed(answer: &Value, marks: &Marks) -> String {
    let results = list_of(answer, "results");
    let networks = list_of(answer, "networks_removed");
    if results.is_empty() && networks.is_empty() {
        return "no containers to destroy".to_owned();
    }
    let line = |it: &Value| {
        let status = if it["kept"] == true { "skipped" } else { "success" };
        let what = if it["kept"] == true { "kept: it is persistent" } else { became(it) };
        let line = format!("{} {NAME}{}{NAME:#} {what}", marks.of_status(status), text(it, "container"));
        [line].into_iter().chain(super::saved::lines(it)).collect::<Vec<_>>().join("\n")
    };
    let network = |it: &Value| {
        let name = plain(it.as_str().unwrap_or_default());
        format!("{} network {NAME}{name}{NAME:#} removed", marks.of_status("success"))
    };
    results.iter().map(line).chain(networks.iter().map(network)).collect::<Vec<_>>().join("\n")
}

/// Images that went, and those that did not.
pub(super) fn cleared(answer: &Value, marks: &Marks) -> String {
    let gone = list_of(answer, "cleared").iter().map(|it| plain(it.as_str().unwrap_or_default()));
    let mut lines: Vec<String> = gone.map(|it| format!("{} {NAME}{it}{NAME:#}", marks.of_status("success"))).collect();
    for it in list_of(answer, "kept") {
        lines.push(format!("{} {} kept: {}", marks.of_status("skipped"), text(it, "image"), text(it, "reason")));
    }
    lines.push(text(answer, "detail"));
    lines.join("\n")
}

/// A command that was ended at a limit.
pub(super) fn timed_out(answer: &Value) -> String {
    let limit = if answer["timeout_kind"] == "silence" { "--silence-timeout" } else { "--timeout" };
    let after = took(answer["duration_ms"].as_u64().unwrap_or(0));
    let left = match answer["tree_ended"].as_bool() {
        Some(true) => "; nothing of the command is left running",
        Some(false) => "; some of its processes could not be ended",
        None => "",
    };
    if answer["running"] == true {
        let job = answer["job_id"].as_str().unwrap_or_default();
        return format!("{DOUBTFUL}timed out{DOUBTFUL:#}: left running after {after} (`{limit}`) as job {job}");
    }
    format!("{DOUBTFUL}timed out{DOUBTFUL:#}: ended after {after} (`{limit}`){left}")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use crate::render::{Marks, bare};

    #[test]
    fn copies_say_how_much_and_where() {
        let call = json!({ "container": "web" });
        let one = json!({ "files": 1, "dirs": 0, "bytes": 3, "container_path": "/tmp/zz", "host_path": "/h/zz" });
        assert_snapshot!(super::copied_in(&call, &one, &Marks::of(true)), @"copied 1 file (3 bytes) to web:/tmp/zz");
        let tree = json!({ "files": 12, "dirs": 2, "bytes": 5000, "container_path": "/tmp/zz", "host_path": "/h/zz",
            "skipped": [{ "path": "l", "reason": "the link leads out of the tree" }] });
        assert_snapshot!(bare(&super::copied_out(&call, &tree, &Marks::of(true))), @r"
        copied 12 files and 2 directories (4.9 KiB) to /h/zz from web:/tmp/zz
        ! left out `l`: the link leads out of the tree
        ");
    }

    #[test]
    fn many_that_were_left_out_are_counted() {
        let skipped: Vec<_> = (0..160).map(|it| json!({ "path": format!("l{it}"), "reason": "a link" })).collect();
        let told = super::left_out(&skipped, &Marks::of(false));
        assert_eq!(told.len(), 6);
        assert_eq!(bare(&told[5]), "! left out 155 more; `--json` names them all");
        assert_eq!(super::left_out(&skipped[..5], &Marks::of(false)).len(), 5);
    }

    #[test]
    fn ends_are_told() {
        assert_snapshot!(bare(&super::destroyed(&json!({ "container": "web", "already_gone": false }))), @"web destroyed");
        assert_snapshot!(bare(&super::destroyed(&json!({ "container": "web", "already_gone": true }))), @"web was gone already");
        let all = json!({ "results": [{ "container": "a", "kept": false }, { "container": "b", "kept": true },
            { "container": "c", "kept": false, "detail": "Forgotten: it was adopted, and is left as it is" }] });
        assert_snapshot!(bare(&super::all_destroyed(&all, &Marks::of(true))), @r"
        ✓ a destroyed
        – b kept: it is persistent
        ✓ c is forgotten: it was adopted, and is left as it is
        ");
        assert_snapshot!(super::all_destroyed(&json!({ "results": [] }), &Marks::of(true)), @"no containers to destroy");
        let ended = json!({ "timeout_kind": "silence", "duration_ms": 1204, "tree_ended": true });
        let kept = json!({ "timeout_kind": "total", "duration_ms": 500, "running": true, "job_id": "0a1b2c3d" });
        assert_snapshot!(bare(&super::timed_out(&kept)), @"timed out: left running after 0.5 s (`--timeout`) as job 0a1b2c3d");
        assert_snapshot!(bare(&super::timed_out(&ended)), @"timed out: ended after 1.2 s (`--silence-timeout`); nothing of the command is left running");
    }
}
