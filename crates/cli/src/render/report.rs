//! What `create` did and made.

use serde_json::Value;

use super::humanize::took;
use super::snapshots::left_out;
use super::{DIM, DOUBTFUL, Marks, NAME, facts, list_of, plain, text, words};

/// Lines of a failed command's output that are shown.
const OUTPUT_LINES: usize = 8;

/// Steps whose parts are told when they went well, too: what was put where is news.
const TOLD: &[&str] = &["repos", "setup_commands", "dotfiles", "workspace"];

/// Room for the longest name of a step, `amplifier settings`: they are told one by one, so none knows the others.
const NAME_WIDTH: usize = 18;

/// One step of the provisioning report, with its parts below it.
pub(crate) fn step(step: &Value, marks: Marks) -> String {
    let all = TOLD.contains(&text(step, "name").as_str());
    let items: Vec<&Value> = list_of(step, "items")
        .iter()
        .filter(|it| all || !["success", "skipped"].contains(&&*text(it, "status")))
        .collect();
    let told = items.iter().any(|it| it["status"] == "failed");
    // What failed is told part by part, if there are parts.
    let error = match text(step, "error").as_str() {
        error if !error.is_empty() && !told => format!(": {error}"),
        _ => String::new(),
    };
    let mark = marks.of_status(&text(step, "status"));
    let name = words(&text(step, "name"));
    let mut lines = vec![format!("{mark} {name:<NAME_WIDTH$} {}{error}{}", text(step, "detail"), time(step))];
    for (at, item) in items.iter().enumerate() {
        let (branch, stem) = if at + 1 == items.len() { ("└", " ") } else { ("├", "│") };
        lines.push(format!("  {DIM}{branch}{DIM:#} {}", part(item, marks)));
        let output = if item["status"] == "failed" { text(item, "output") } else { String::new() };
        let output: Vec<&str> = output.lines().collect();
        let last = &output[output.len().saturating_sub(OUTPUT_LINES)..];
        lines.extend(last.iter().map(|line| format!("  {DIM}{stem}   | {line}{DIM:#}")));
    }
    lines.join("\n")
}

/// A part of a step: its name, and where it went or why it failed.
fn part(item: &Value, marks: Marks) -> String {
    let mark = marks.of_status(&text(item, "status"));
    let what = match (text(item, "error").as_str(), text(item, "path").as_str(), text(item, "commit").as_str()) {
        ("", "", _) => String::new(),
        ("", path, "") => format!(" in {path}"),
        ("", path, commit) => format!(" in {path} at {}", commit.chars().take(12).collect::<String>()),
        (error, ..) => format!(": {error}"),
    };
    format!("{mark} {}{what}{}", text(item, "name"), time(item))
}

/// How long it took, where that is worth a word.
fn time(of: &Value) -> String {
    match of["duration_ms"].as_u64() {
        Some(ms) if ms >= 50 => format!(" {DIM}({}){DIM:#}", took(ms)),
        _ => String::new(),
    }
}

/// A new container. Of the steps that did not happen only a missing workspace is news.
pub(super) fn created(answer: &Value, marks: &Marks, told: &[String]) -> String {
    let news = |it: &&Value| text(it, "status") != "skipped" || text(it, "name") == "workspace";
    let fresh = |it: &&Value| !told.contains(&text(it, "name"));
    let report = list_of(answer, "provisioning_report").iter();
    let mut lines: Vec<String> = report.filter(news).filter(fresh).map(|it| step(it, *marks)).collect();
    let name = text(answer, "container");
    let ready = match answer["provisioning_ok"].as_bool() {
        Some(false) => format!("is made, but {DOUBTFUL}not everything worked{DOUBTFUL:#}"),
        _ => "is ready".to_owned(),
    };
    let time = answer["duration_ms"].as_u64().map(|ms| format!(" {DIM}({}){DIM:#}", took(ms))).unwrap_or_default();
    lines.push(format!("{NAME}{name}{NAME:#} {ready}{time}"));
    let ports: Vec<String> = list_of(answer, "ports").iter().map(port).collect();
    lines.extend(facts(&[
        ("id", text(answer, "container_id")),
        ("fork of", text(answer, "forked_from")),
        ("image", text(answer, "image")),
        ("user", text(answer, "user")),
        ("workdir", text(answer, "workdir")),
        ("ports", ports.join(", ")),
        ("services", services(answer)),
        ("next", format!("coracle exec {name} -- COMMAND, or {}", text(answer, "coracle_command"))),
    ]));
    lines.extend(left_out(answer));
    lines.join("\n")
}

/// The services of its stack: how each is, and where it answers.
pub(super) fn services(answer: &Value) -> String {
    let one = |it: &Value| {
        let state = match (it["health"].as_str(), it["exit_code"].as_i64()) {
            (Some(health), _) => plain(health),
            (None, Some(code)) => format!("ended with {code}"),
            (None, None) => text(it, "state"),
        };
        let ports: Vec<String> = list_of(it, "ports").iter().map(port).collect();
        let at = if ports.is_empty() { String::new() } else { format!(" at {}", ports.join(", ")) };
        format!("{} ({state}){at}", text(it, "service"))
    };
    list_of(answer, "compose_services").iter().map(one).collect::<Vec<_>>().join("; ")
}

/// A published port.
pub(super) fn port(port: &Value) -> String {
    let protocol = match plain(port["protocol"].as_str().unwrap_or_default()).as_str() {
        "" | "tcp" => String::new(),
        other => format!("/{other}"),
    };
    format!("{}:{} -> {}{protocol}", text(port, "address"), port["host"], port["container"])
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::{Value, json};

    use crate::render::{Marks, bare};

    #[test]
    fn services_are_told_with_how_they_are_and_where() {
        let port = json!({ "address": "127.0.0.1", "host": 32768, "container": 5432, "protocol": "tcp" });
        let answer = json!({ "compose_services": [
            { "service": "db", "state": "running", "health": "healthy", "exit_code": null, "ports": [port] },
            { "service": "once", "state": "exited", "health": null, "exit_code": 0, "ports": [] },
        ] });
        assert_snapshot!(super::services(&answer), @"db (healthy) at 127.0.0.1:32768 -> 5432; once (ended with 0)");
    }

    fn answer() -> Value {
        let failed = json!({ "name": "apt-get update", "status": "failed", "error": "exit 100", "duration_ms": 6400, "output": "E: no\u{7} network\n" });
        json!({ "container": "web", "container_id": "0123", "image": "ubuntu:24.04", "duration_ms": 7640,
            "user": "1000:1000", "workdir": "/workspace", "coracle_command": "coracle shell web", "provisioning_ok": false,
            "ports": [{ "address": "127.0.0.1", "host": 8080, "container": 80, "protocol": "tcp" },
                { "address": "127.0.0.1", "host": 53, "container": 53, "protocol": "udp" }],
            "provisioning_report": [
                { "name": "image", "status": "success", "detail": "ubuntu:24.04 was here", "duration_ms": 12 },
                { "name": "workspace", "status": "skipped", "detail": "the working directory is not mounted: it is your home" },
                { "name": "git", "status": "skipped", "detail": "" },
                { "name": "user", "status": "failed", "detail": "no user", "error": "no such id" },
                { "name": "setup_commands", "status": "partial", "detail": "1/2 commands succeeded", "duration_ms": 6500,
                    "error": "`apt-get update`: exit 100", "items": [{ "name": "true", "status": "success" }, failed] }] })
    }

    #[test]
    fn a_new_container_is_told_with_its_steps() {
        assert_snapshot!(bare(&super::created(&answer(), &Marks::of(true), &[])), @r"
        ✓ image              ubuntu:24.04 was here
        – workspace          the working directory is not mounted: it is your home
        ✗ user               no user: no such id
        ! setup commands     1/2 commands succeeded (6.5 s)
          ├ ✓ true
          └ ✗ apt-get update: exit 100 (6.4 s)
              | E: no� network
        web is made, but not everything worked (7.6 s)
          id       0123
          image    ubuntu:24.04
          user     1000:1000
          workdir  /workspace
          ports    127.0.0.1:8080 -> 80, 127.0.0.1:53 -> 53/udp
          next     coracle exec web -- COMMAND, or coracle shell web
        ");
    }

    #[test]
    fn the_details_of_all_steps_begin_in_one_column() {
        let column = |name: &str| {
            let told =
                bare(&super::step(&json!({ "name": name, "status": "success", "detail": "@" }), Marks::of(false)));
            told.find('@').unwrap()
        };
        let names = [
            "image",
            "workspace",
            "user",
            "ca_certificates",
            "setup_commands",
            "env_passthrough",
            "amplifier_settings",
        ];
        assert!(names.iter().all(|it| column(it) == column("image")));
    }

    #[test]
    fn the_parts_of_a_step_are_its_branches() {
        let step = json!({ "name": "repos", "status": "partial", "detail": "1/2 repositories cloned", "error": "x", "items": [
            { "name": "a", "status": "success", "path": "/workspace/a", "commit": "0123456789abcdef" },
            { "name": "b", "status": "failed", "error": "exit 128", "output": "fatal: no\n" },
            { "name": "c", "status": "success", "path": "/c" }] });
        assert_snapshot!(bare(&super::step(&step, Marks::of(true))), @r"
        ! repos              1/2 repositories cloned
          ├ ✓ a in /workspace/a at 0123456789ab
          ├ ✗ b: exit 128
          │   | fatal: no
          └ ✓ c in /c
        ");
    }

    #[test]
    fn steps_that_were_shown_are_not_repeated() {
        let told = ["image", "workspace", "user", "setup_commands"].map(str::to_owned);
        assert_snapshot!(bare(&super::created(&answer(), &Marks::of(false), &told)), @r"
        web is made, but not everything worked (7.6 s)
          id       0123
          image    ubuntu:24.04
          user     1000:1000
          workdir  /workspace
          ports    127.0.0.1:8080 -> 80, 127.0.0.1:53 -> 53/udp
          next     coracle exec web -- COMMAND, or coracle shell web
        ");
    }
}
