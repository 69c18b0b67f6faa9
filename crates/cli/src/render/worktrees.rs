//! Worktrees of workflows.

use coracle::humanize::{bytes, count};
use jiff::Timestamp;
use serde_json::Value;

use super::humanize::ago;
use super::table::{self, View, fixed, flexible};
use super::{BAD, DIM, DOUBTFUL, GOOD, NAME, facts, list_of, plain, text};

/// A worktree that is there.
pub(super) fn created(answer: &Value) -> String {
    let id = text(answer, "workflow");
    let word = if answer["created"] == true { "is ready" } else { "was there already" };
    let commit: String = text(answer, "base_commit").chars().take(12).collect();
    let ports = answer["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let port = |at: usize| ports.get(at).and_then(Value::as_u64).unwrap_or_default();
    let mut lines = vec![format!("{NAME}{id}{NAME:#} {word}")];
    lines.extend(facts(&[
        ("branch", text(answer, "branch")),
        ("from", format!("{} ({commit})", text(answer, "base"))),
        ("inside", text(answer, "path")),
        ("here", text(answer, "host_path")),
        ("ports", format!("{} to {}", port(0), port(1))),
        ("made as", text(&answer["devcontainer"], "file")),
        ("next", format!("coracle worker run --worktree {id} --prompt '…'")),
    ]));
    lines.extend(dressed(&answer["devcontainer"]));
    lines.join("\n")
}

/// What became of a repository's own file: its commands, and what has no effect.
fn dressed(told: &Value) -> Vec<String> {
    let command = |it: &Value| {
        let name = [text(it, "stage"), text(it, "name")].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>();
        let (name, error) = (name.join(" "), text(it, "error"));
        match error.as_str() {
            "" => format!("  {GOOD}ran{GOOD:#} {name}"),
            error => format!("  {BAD}failed{BAD:#} {name}: {error}\n{}", plain_lines(&text(it, "output"))),
        }
    };
    let warning = |it: &Value| format!("  {DOUBTFUL}note{DOUBTFUL:#} {}", text(it, "message"));
    let commands = list_of(told, "commands");
    // One of before is told as long as it keeps others from running.
    let before = told.get("failed").filter(|it| it.is_object() && !commands.contains(*it));
    let commands = commands.iter().chain(before).map(command);
    commands.chain(list_of(told, "warnings").iter().map(warning)).collect()
}

/// What it did, a line for each commit.
pub(super) fn log(answer: &Value, now: Timestamp) -> String {
    let commits = list_of(answer, "commits");
    if commits.is_empty() {
        return format!("{} has no commit of its own yet", text(answer, "branch"));
    }
    let line = |it: &Value| {
        let (commit, when) = (text(it, "commit"), it["at"].as_i64().and_then(|at| Timestamp::from_second(at).ok()));
        let when = when.map(|at| ago(&at.to_string(), now)).unwrap_or_default();
        let by = format!("{DIM}{}, {when}{DIM:#}", plain(&text(it, "author")));
        format!("{NAME}{}{NAME:#} {} {by}", commit.get(..12).unwrap_or(&commit), plain(&text(it, "subject")))
    };
    commits.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Where it is, and how one looks into it.
pub(super) fn opened(answer: &Value) -> String {
    let id = text(answer, "workflow");
    let container: String = text(answer, "container").chars().take(12).collect();
    facts(&[
        ("branch", text(answer, "branch")),
        ("inside", text(answer, "path")),
        ("here", text(answer, "host_path")),
        ("container", format!("{container} ({})", text(answer, "engine"))),
        ("shell", format!("coracle worktree shell {id}")),
        ("command", format!("coracle worktree exec {id} -- git status")),
        ("commits", format!("coracle worktree log {id}")),
        ("changes", format!("coracle worktree diff {id}")),
    ])
    .join("\n")
}

/// All of them.
pub(super) fn table(answer: &Value, view: View) -> String {
    let rows = list_of(answer, "worktrees");
    let stopped = list_of(answer, "stopped");
    if rows.is_empty() && stopped.is_empty() {
        return "no worktrees; `coracle worktree create SOURCE` makes one".to_owned();
    }
    let mut lines = Vec::new();
    if !rows.is_empty() {
        let row = |row: &Value| {
            let number = |key: &str| row[key].as_u64().unwrap_or(0);
            let commits = format!("+{} -{}", number("ahead"), number("behind"));
            let last = row["last_commit_at"].as_i64().and_then(|it| Timestamp::from_second(it).ok());
            let last = last.map(|it| ago(&it.to_string(), view.now)).unwrap_or_default();
            vec![text(row, "id"), text(row, "branch"), text(row, "base"), commits, state(row), last]
        };
        let columns = [
            flexible("WORKFLOW"),
            flexible("BRANCH").or_left_out(1),
            flexible("FROM").or_left_out(2),
            fixed("COMMITS"),
            flexible("STATE"),
            fixed("LAST COMMIT").or_left_out(3),
        ];
        lines.extend(table::lines(&columns, rows.iter().map(row).collect(), view));
    }
    let names: Vec<_> = stopped.iter().map(|it| text(it, "id")).collect();
    if !names.is_empty() {
        lines.push(format!("{DIM}not running{DIM:#} {}; `--start` looks into them", names.join(", ")));
    }
    lines.join("\n")
}

fn state(row: &Value) -> String {
    if row["missing"] == true {
        return "missing".to_owned();
    }
    let count = |key: &str| row[key].as_u64().filter(|it| *it > 0);
    let changed = (row["dirty"] == true).then(|| "changed".to_owned());
    let parts = [
        changed,
        count("untracked").map(|it| format!("{it} new")),
        count("unpushed").map(|it| format!("{it} unpushed")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "clean".to_owned() } else { parts.join(", ") }
}

/// What one changed: the patch as it is, so that it can be piped, or names and numbers.
pub(super) fn diff(answer: &Value) -> String {
    let files = list_of(answer, "files");
    let patch = answer["patch"].as_str().unwrap_or_default();
    if files.is_empty() {
        return "nothing changed".to_owned();
    }
    let mut lines: Vec<String> = match patch {
        "" => files.iter().map(file).collect(),
        patch => vec![plain_lines(patch)],
    };
    let omitted = list_of(answer, "omitted_files").len();
    if omitted > 0 {
        let omitted = count(omitted as u64, "more file is not shown", "more files are not shown");
        lines.push(format!("{DIM}{omitted}; `--max-bytes` takes more{DIM:#}"));
    }
    lines.join("\n")
}

fn file(it: &Value) -> String {
    let count = |key: &str| it[key].as_u64().unwrap_or(0);
    let numbers = match it["binary"] == true {
        true => "binary".to_owned(),
        false => format!("+{} -{}", count("additions"), count("deletions")),
    };
    format!("{}  {}  {DIM}{numbers}{DIM:#}", text(it, "status"), text(it, "path"))
}

/// A patch may hold what a terminal would obey.
fn plain_lines(patch: &str) -> String {
    patch.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// A file of this host.
pub(super) fn exported(answer: &Value) -> String {
    let size = bytes(answer["bytes"].as_u64().unwrap_or(0));
    format!("{NAME}{}{NAME:#} has {size}", text(answer, "file"))
}

/// What came into a checkout.
pub(super) fn applied(answer: &Value) -> String {
    let branch = text(answer, "branch");
    let files = list_of(answer, "files");
    if !branch.is_empty() {
        return format!("{GOOD}branch {branch}{GOOD:#} is in {}", text(answer, "to"));
    }
    match files.len() {
        0 => "nothing changed".to_owned(),
        some => format!("{GOOD}{} changed{GOOD:#} in {}", count(some as u64, "file", "files"), text(answer, "to")),
    }
}

/// What a remote has now.
pub(super) fn pushed(answer: &Value) -> String {
    let commit: String = text(answer, "new").chars().take(12).collect();
    let mut line = format!("{NAME}{}{NAME:#} is at {commit}", text(answer, "ref"));
    if answer["uncommitted"] == true {
        line.push_str("; what is not committed was not pushed");
    }
    line
}

/// One that went.
pub(super) fn removed(answer: &Value) -> String {
    let id = text(answer, "workflow");
    let saved = text(&answer["saved"], "location");
    if answer["removed"] != true {
        return format!("{NAME}{id}{NAME:#} was gone already");
    }
    let mut lines = vec![match saved.as_str() {
        "" => format!("{NAME}{id}{NAME:#} removed; nothing was to be saved"),
        place => format!("{NAME}{id}{NAME:#} removed; its work is in {place}"),
    }];
    let more = list_of(answer, "also_saved").iter().map(|it| text(it, "location"));
    lines.extend(more.map(|place| format!("what else the sandbox held is in {place}")));
    let kept = list_of(answer, "kept").iter().filter_map(Value::as_str);
    lines.extend(kept.map(|place| format!("{} stays: it is not ours", plain(place))));
    lines.join("\n")
}
