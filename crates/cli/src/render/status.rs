//! All that is known of one container.

use coracle::humanize::{bytes, count};
use jiff::Timestamp;
use serde_json::Value;

use super::humanize::{ago, until};
use super::report::{port, step};
use super::{BAD, DOUBTFUL, GOOD, Marks, NAME, facts, list_of, text};

/// What a person asks first: does it run, from what, with which way in and which limits.
pub(super) fn of_one(answer: &Value, marks: &Marks, now: Timestamp) -> String {
    let metadata = &answer["metadata"];
    let joined = |key: &str, each: fn(&Value) -> String| list_of(metadata, key).iter().map(each).collect::<Vec<_>>();
    let ports: Vec<String> = list_of(answer, "ports").iter().map(port).collect();
    let mut lines = vec![format!("{NAME}{}{NAME:#} {}", text(answer, "container"), state(answer, now))];
    lines.extend(facts(&[
        ("id", text(answer, "container_id")),
        ("image", text(answer, "image")),
        ("engine", text(metadata, "engine")),
        ("made", ago(&text(metadata, "created"), now)),
        ("user", user(answer)),
        ("workdir", text(answer, "workdir")),
        ("mounts", joined("mounts", mount).join(", ")),
        ("ports", ports.join(", ")),
        ("services", super::report::services(answer)),
        ("network", text(answer, "network")),
        ("limits", limits(&answer["limits"])),
        ("env", joined("env_keys", |it| super::plain(it.as_str().unwrap_or_default())).join(", ")),
        ("session", text(answer, "session")),
        ("persistent", if metadata["persistent"] == true { "yes".into() } else { String::new() }),
        ("expires", until(&text(answer, "expires_at"), now)),
        ("uses", usage(&answer["usage"])),
        ("jobs", jobs(&answer["jobs_running"])),
        ("health", health(&answer["health"])),
        (
            "read-only",
            list_of(answer, "read_only_paths")
                .iter()
                .map(|it| super::plain(it.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        ("review", list_of(answer, "review").iter().map(changed).collect::<Vec<_>>().join(", ")),
    ]));
    let report = list_of(metadata, "provisioning_report").iter();
    let wrong = report.filter(|it| it["status"] == "failed" || it["status"] == "partial");
    lines.extend(wrong.map(|it| step(it, *marks)));
    lines.join("\n")
}

fn state(answer: &Value, now: Timestamp) -> String {
    let status = text(answer, "status");
    if answer["running"] == true {
        return format!("{GOOD}{status}{GOOD:#}, started {}", ago(&text(answer, "started_at"), now));
    }
    let code = answer["exit_code"].as_i64().map(|it| format!(" with {it}")).unwrap_or_default();
    let memory = if answer["oom_killed"] == true { format!(", {BAD}out of memory{BAD:#}") } else { String::new() };
    format!("{DOUBTFUL}{status}{DOUBTFUL:#}{code}{memory}")
}

fn user(answer: &Value) -> String {
    match text(&answer["metadata"], "user_name").as_str() {
        "" => text(answer, "exec_user"),
        name => format!("{name} ({})", text(answer, "exec_user")),
    }
}

fn usage(usage: &Value) -> String {
    let memory = usage["memory_bytes"].as_u64().map(|it| format!("{} of memory", bytes(it)));
    let pids = usage["pids"].as_u64().map(|it| count(it, "process", "processes"));
    let cpu = usage["cpu_percent"].as_f64().map(|it| format!("{it} % of a core"));
    let disk = usage["disk_bytes"].as_u64().map(|it| format!("{} written", bytes(it)));
    [memory, pids, cpu, disk].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn jobs(running: &Value) -> String {
    running.as_u64().filter(|it| *it > 0).map(|it| format!("{} running", count(it, "job", "jobs"))).unwrap_or_default()
}

fn health(health: &Value) -> String {
    if !health.is_object() {
        return String::new();
    }
    let image = match text(health, "image").as_str() {
        "none" => String::new(),
        word => format!(", image {word}"),
    };
    format!("guest {}{image}", text(health, "guest"))
}

fn changed(it: &Value) -> String {
    format!("{} ({})", text(it, "path"), text(it, "change"))
}

fn mount(it: &Value) -> String {
    format!("{} -> {} ({})", text(it, "host"), text(it, "container"), text(it, "mode"))
}

fn limits(limits: &Value) -> String {
    let memory = limits["memory"].as_u64().map(|it| format!("{} of memory", bytes(it)));
    let cpus = limits["cpus"].as_f64().map(|it| format!("{it} cores"));
    let pids = limits["pids"].as_u64().map(|it| format!("{it} processes"));
    [memory, cpus, pids].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::json;

    use crate::render::{Marks, bare};

    fn check(answer: &serde_json::Value) -> String {
        bare(&super::of_one(answer, &Marks::of(true), "2026-11-22T12:00:00Z".parse().unwrap()))
    }

    #[test]
    fn one_that_runs_is_told_at_a_glance() {
        let answer = json!({ "container": "web", "container_id": "0123", "running": true, "status": "running",
            "started_at": "2026-11-22T11:57:00.07Z", "image": "ubuntu:24.04", "exec_user": "1000:1000", "workdir": "/workspace",
            "network": "bridge", "session": "default", "limits": { "memory": 536_870_912, "cpus": null, "pids": 1024 },
            "ports": [{ "address": "127.0.0.1", "host": 8080, "container": 80, "protocol": "tcp" }],
            "metadata": { "engine": "docker", "created": "2026-11-22T11:57:00Z", "user_name": "me", "env_keys": ["A", "B"],
                "mounts": [{ "host": "/src", "container": "/workspace", "mode": "rw" }],
                "provisioning_report": [{ "name": "image", "status": "success", "detail": "was here" },
                    { "name": "setup_commands", "status": "failed", "detail": "0/1 commands succeeded", "error": "`x`: exit 1" }] } });
        assert_snapshot!(check(&answer), @r"
        web running, started 3 min ago
          id       0123
          image    ubuntu:24.04
          engine   docker
          made     3 min ago
          user     me (1000:1000)
          workdir  /workspace
          mounts   /src -> /workspace (rw)
          ports    127.0.0.1:8080 -> 80
          network  bridge
          limits   512 MiB of memory, 1024 processes
          env      A, B
          session  default
        ✗ setup commands     0/1 commands succeeded: `x`: exit 1
        ");
    }

    #[test]
    fn what_it_uses_and_when_it_goes_is_told() {
        let answer = json!({ "container": "web", "running": true, "status": "running", "started_at": "2026-11-22T11:59:50Z",
            "usage": { "memory_bytes": 1 << 20, "pids": 2, "cpu_percent": 1.5, "disk_bytes": 4096 }, "jobs_running": 1,
            "health": { "guest": "ok", "image": "none" }, "expires_at": "2026-11-23T11:00:00.000Z" });
        assert_snapshot!(check(&answer), @r"
        web running, started just now
          expires  in 23 h, unless it is used
          uses     1 MiB of memory, 2 processes, 1.5 % of a core, 4 KiB written
          jobs     1 job running
          health   guest ok
        ");
    }

    #[test]
    fn one_that_ended_says_how() {
        let answer =
            json!({ "container": "web", "running": false, "status": "exited", "exit_code": 137, "oom_killed": true });
        assert_snapshot!(check(&answer), @"web exited with 137, out of memory");
    }
}
