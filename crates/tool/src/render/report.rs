//! What `create` did and made.

use serde_json::Value;

use super::amounts::took;
use super::{DIM, DOUBTFUL, Marks, NAME, facts, list_of, plain, text, words};

/// Lines of a failed command's output that are shown.
const OUTPUT_LINES: usize = 8;

/// One step of the provisioning report, with those of its parts that failed.
pub(crate) fn step(step: &Value, marks: Marks) -> String {
    let failed: Vec<&Value> = list_of(step, "items").iter().filter(|it| it["status"] != "success").collect();
    // What failed is told item by item, if there are items.
    let error = match text(step, "error").as_str() {
        error if !error.is_empty() && failed.is_empty() => format!(": {error}"),
        _ => String::new(),
    };
    let time = match step["duration_ms"].as_u64() {
        Some(ms) if ms >= 50 => format!(" {DIM}({}){DIM:#}", took(ms)),
        _ => String::new(),
    };
    let mark = marks.of_status(&text(step, "status"));
    let mut lines = vec![format!("{mark} {:<14} {}{error}{time}", words(&text(step, "name")), text(step, "detail"))];
    for item in failed {
        let mark = marks.of_status(&text(item, "status"));
        lines.push(format!("    {mark} {}: {}", text(item, "name"), text(item, "error")));
        let output = text(item, "output");
        let output: Vec<&str> = output.lines().collect();
        let last = &output[output.len().saturating_sub(OUTPUT_LINES)..];
        lines.extend(last.iter().map(|line| format!("      {DIM}| {line}{DIM:#}")));
    }
    lines.join("\n")
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
        ("image", text(answer, "image")),
        ("user", text(answer, "user")),
        ("workdir", text(answer, "workdir")),
        ("ports", ports.join(", ")),
        ("next", format!("coracle exec {name} -- COMMAND, or {}", text(answer, "coracle_command"))),
    ]));
    lines.join("\n")
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

    fn answer() -> Value {
        let failed = json!({ "name": "apt-get update", "status": "failed", "error": "exit 100", "output": "E: no\u{7} network\n" });
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
        ✓ image          ubuntu:24.04 was here
        – workspace      the working directory is not mounted: it is your home
        ✗ user           no user: no such id
        ! setup commands 1/2 commands succeeded (6.5 s)
            ✗ apt-get update: exit 100
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
