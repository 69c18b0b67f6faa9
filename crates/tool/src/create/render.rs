//! A new container, and the report of its steps, as a person reads them.

use coracle_context::document::{Block, Document, Render, StyledText, Symbol, joined, optional, word};
use coracle_context::humanize::{duration, image_label};
use coracle_provision::{Report, ReportItem, Status, StepReport};
use coracle_runtime::PublishedPort;
use jiff::Timestamp;
use serde_json::Value;

use super::{CreateResponse, ServiceAnswer};
use crate::snapshot::without;

/// Lines of a failed command's output that are shown.
const OUTPUT_LINES: usize = 8;

/// Steps whose parts are shown when they went well, too: what was put where is news.
const SHOWN_IN_PARTS: &[&str] = &["repos", "setup_commands", "devcontainer", "dotfiles", "workspace"];

/// Room for the longest name of a step, `amplifier settings`: steps are shown one by one as they end.
const NAME_WIDTH: usize = 18;

/// Shorter durations are not shown.
const SHORTEST_MS: u64 = 50;

impl Render for CreateResponse {
    fn render(&self, _: Timestamp) -> Document {
        // Of the steps that did not happen only a missing workspace is news.
        let is_shown = |step: &&StepReport| step.status != Status::Skipped || step.name == "workspace";
        let steps = self.provisioning_report.0.iter().filter(is_shown).map(step_block).collect();
        let ready = StyledText::new().name(&self.container);
        let ready = if self.provisioning_ok {
            ready.plain(" is ready")
        } else {
            ready.plain(" is made, but ").doubtful("not everything worked")
        };
        let ready = ready.plain(" ").dim(format!("({})", duration(self.duration_ms)));
        let next = format!("coracle exec {} -- COMMAND, or {}", self.container, self.coracle_command);
        let server = self.server.as_ref();
        let is_incomplete = !self.provisioning_report.ok();
        Document { blocks: steps, is_incomplete, ..Document::default() }
            .then(ready)
            .facts([
                ("id", self.container_id.as_str().into()),
                ("fork of", optional(self.forked_from.as_ref()).into()),
                ("image", image_label(&self.image, self.purpose.as_deref()).into()),
                ("user", self.user.to_string().into()),
                ("workdir", self.workdir.to_string().into()),
                ("ports", ports(&self.ports).into()),
                ("server", optional(server.and_then(|server| server.url.as_ref())).into()),
                ("password", optional(server.and_then(|server| server.password.as_ref())).into()),
                ("services", services(self.compose_services.as_deref().unwrap_or_default()).into()),
                ("next", next.into()),
            ])
            .and_lines(without(self.not_included.as_deref().unwrap_or_default()))
    }

    /// What it is made of, and which steps worked.
    fn render_for_model(&self) -> String {
        let Self { container, image, user, workdir, .. } = self;
        let mut lines = vec![format!("{container} is ready: image {image}, user {user}, work directory {workdir}")];
        let ports = self.ports.iter().map(|port| format!("{}:{} -> {}", port.address, port.host, port.container));
        let steps = &self.provisioning_report.0;
        let worked = steps.iter().filter(|step| step.status == Status::Success).map(|step| &step.name);
        let named = [("ports", joined(ports)), ("worked", joined(worked))];
        lines.extend(named.iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| format!("{name}: {list}")));
        lines.extend(steps.iter().filter(|step| has_failed(step)).map(failed_step));
        lines.join("\n")
    }
}

fn has_failed(step: &StepReport) -> bool {
    matches!(step.status, Status::Failed | Status::Partial)
}

/// A step that failed, with the parts that did.
fn failed_step(step: &StepReport) -> String {
    let items = step.items.iter().filter(|item| item.status == Status::Failed);
    let parts = items.map(|item| format!("\n  {}: {}", item.name, item.error.as_deref().unwrap_or_default()));
    let reason = step.error.as_ref().unwrap_or(&step.detail);
    format!("FAILED {}: {reason}{}", step.name, parts.collect::<String>())
}

/// A step of a report.
#[must_use]
pub fn step_block(step: &StepReport) -> Block {
    Block::Step { name: step.name.to_string(), lines: step_lines(step) }
}

/// The steps of a report in a record that failed, in whole or in part.
pub(crate) fn failed_steps(report: &Value) -> Vec<Block> {
    let report: Report = serde_json::from_value(report.clone()).unwrap_or_default();
    report.0.iter().filter(|step| has_failed(step)).map(step_block).collect()
}

/// The step, with its parts below it.
fn step_lines(step: &StepReport) -> Vec<StyledText> {
    let all = SHOWN_IN_PARTS.contains(&step.name.as_ref());
    let is_shown = |item: &&ReportItem| all || !matches!(item.status, Status::Success | Status::Skipped);
    let items: Vec<&ReportItem> = step.items.iter().filter(is_shown).collect();
    let error = match step.error.as_deref().unwrap_or_default() {
        "" => String::new(),
        // What failed is shown part by part, if there are parts.
        _ if items.iter().any(|item| item.status == Status::Failed) => String::new(),
        error => format!(": {error}"),
    };
    let name = step.name.replace('_', " ");
    let line = StyledText::new().symbol(Symbol::of_status(&step.status.to_string()));
    let line = line.plain(format!(" {name:<NAME_WIDTH$} {}{error}", step.detail));
    let mut lines = vec![with_duration(line, Some(step.duration_ms))];
    for (at, item) in items.iter().enumerate() {
        let (branch, stem) = if at + 1 == items.len() { ("└", " ") } else { ("├", "│") };
        lines.push(StyledText::from("  ").dim(branch).plain(" ").text(item_line(item)));
        let output = if item.status == Status::Failed { about(item, "output") } else { "" };
        let output: Vec<&str> = output.lines().collect();
        let last = &output[output.len().saturating_sub(OUTPUT_LINES)..];
        lines.extend(last.iter().map(|line| StyledText::from("  ").dim(format!("{stem}   | {line}"))));
    }
    lines
}

/// A part's name, and where it went or why it failed.
fn item_line(item: &ReportItem) -> StyledText {
    let (error, path, commit) = (item.error.as_deref().unwrap_or_default(), about(item, "path"), about(item, "commit"));
    let outcome = match (error, path, commit) {
        ("", "", _) => String::new(),
        ("", path, "") => format!(" in {path}"),
        ("", path, commit) => format!(" in {path} at {}", commit.chars().take(12).collect::<String>()),
        (error, ..) => format!(": {error}"),
    };
    let line = StyledText::new().symbol(Symbol::of_status(&item.status.to_string()));
    let line = line.plain(format!(" {}{outcome}", item.name));
    with_duration(line, item.about.get("duration_ms").and_then(Value::as_u64))
}

/// A text among the fields that parts of one kind have.
fn about<'a>(item: &'a ReportItem, field: &str) -> &'a str {
    item.about.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn with_duration(line: StyledText, ms: Option<u64>) -> StyledText {
    match ms {
        Some(ms) if ms >= SHORTEST_MS => line.plain(" ").dim(format!("({})", duration(ms))),
        _ => line,
    }
}

/// The services of a stack: how each is, and where it answers.
pub(crate) fn services(services: &[ServiceAnswer]) -> String {
    let one = |service: &ServiceAnswer| {
        let state = match (service.health, service.exit_code) {
            (Some(health), _) => word(health),
            (None, Some(code)) => format!("ended with {code}"),
            (None, None) => service.state.to_string(),
        };
        let at = if service.ports.is_empty() { String::new() } else { format!(" at {}", ports(&service.ports)) };
        format!("{} ({state}){at}", service.service)
    };
    services.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Published ports.
pub(crate) fn ports(ports: &[PublishedPort]) -> String {
    let one = |it: &PublishedPort| {
        let protocol = match word(it.protocol).as_str() {
            "" | "tcp" => String::new(),
            other => format!("/{other}"),
        };
        format!("{}:{} -> {}{protocol}", it.address, it.host, it.container)
    };
    ports.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::{Value, json};

    use super::*;

    fn step(step: Value) -> StepReport {
        serde_json::from_value(step).unwrap()
    }

    fn block(it: Value) -> String {
        Document { blocks: vec![step_block(&step(it))], ..Document::default() }.to_string()
    }

    #[test]
    fn services_are_shown_with_their_state_and_ports() {
        let port = json!({ "address": "127.0.0.1", "host": 32768, "container": 5432, "protocol": "tcp" });
        let service = |name: &str, state: &str, more: Value| {
            let mut service = json!({ "service": name, "name": name, "container_id": "", "image": "", "state": state,
                "health": null, "exit_code": null, "ports": [] });
            service.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            serde_json::from_value::<ServiceAnswer>(service).unwrap()
        };
        let all = [
            service("db", "running", json!({ "health": "healthy", "ports": [port] })),
            service("once", "exited", json!({ "exit_code": 0 })),
        ];
        assert_snapshot!(services(&all), @r"db (healthy) at 127.0.0.1:32768 -> 5432; once (ended with 0)");
    }

    fn created(report: &Value) -> CreateResponse {
        let report: Report = serde_json::from_value(report.clone()).unwrap();
        serde_json::from_value(json!({
            "container": "web", "container_id": "0123", "id": "0123", "image": "ubuntu:24.04", "image_id": "",
            "image_source": "local", "connect_command": "", "coracle_command": "coracle shell web", "home": "/root",
            "user": "1000:1000", "workdir": "/workspace", "env_vars_injected": 0, "persistent": false,
            "cache_used": false, "reused": false, "provisioning_ok": report.ok(), "provisioning_report": report,
            "network": "bridge", "limits": { "enforced": [] }, "warnings": [], "duration_ms": 7640,
            "ports": [{ "address": "127.0.0.1", "host": 8080, "container": 80, "protocol": "tcp" },
                { "address": "127.0.0.1", "host": 53, "container": 53, "protocol": "udp" }],
        }))
        .unwrap()
    }

    fn flawed() -> CreateResponse {
        let failed = json!({ "name": "apt-get update", "status": "failed", "error": "exit 100", "duration_ms": 6400, "output": "E: no\u{7} network\n" });
        created(&json!([
            { "name": "image", "status": "success", "detail": "ubuntu:24.04 was here", "duration_ms": 12 },
            { "name": "workspace", "status": "skipped", "detail": "the working directory is not mounted: it is your home" },
            { "name": "git", "status": "skipped", "detail": "" },
            { "name": "user", "status": "failed", "detail": "no user", "error": "no such id" },
            { "name": "setup_commands", "status": "partial", "detail": "1/2 commands succeeded", "duration_ms": 6500,
                "error": "`apt-get update`: exit 100", "items": [{ "name": "true", "status": "success" }, failed] },
        ]))
    }

    #[test]
    fn a_new_container_is_shown_with_its_steps() {
        let document = flawed().render(Timestamp::UNIX_EPOCH);
        assert!(document.is_incomplete);
        assert_snapshot!(document, @r"
        ✓ image              ubuntu:24.04 was here
        – workspace          the working directory is not mounted: it is your home
        ✗ user               no user: no such id
        ! setup commands     1/2 commands succeeded (6.5 s)
          ├ ✓ true
          └ ✗ apt-get update: exit 100 (6.4 s)
              | E: no� network
        web is made, but not everything worked (7.6 s)
          id       0123
          image    ubuntu 24.04
          user     1000:1000
          workdir  /workspace
          ports    127.0.0.1:8080 -> 80, 127.0.0.1:53 -> 53/udp
          next     coracle exec web -- COMMAND, or coracle shell web
        ");
    }

    #[test]
    fn a_model_reads_what_it_is_and_which_steps_failed() {
        assert_snapshot!(flawed().render_for_model(), @r"
        web is ready: image ubuntu:24.04, user 1000:1000, work directory /workspace
        ports: 127.0.0.1:8080 -> 80, 127.0.0.1:53 -> 53
        worked: image
        FAILED user: no such id
        FAILED setup_commands: `apt-get update`: exit 100
          apt-get update: exit 100
        ");
    }

    #[test]
    fn a_skipped_step_leaves_nothing_incomplete() {
        let check = |statuses: &[&str]| {
            let steps: Vec<Value> =
                statuses.iter().map(|status| json!({ "name": "x", "status": status, "detail": "" })).collect();
            created(&json!(steps)).render(Timestamp::UNIX_EPOCH).is_incomplete
        };
        assert!(!check(&[]) && !check(&["success", "skipped"]));
        assert!(check(&["success", "partial"]) && check(&["failed"]));
    }

    #[test]
    fn the_details_of_all_steps_begin_in_one_column() {
        let column = |name: &str| block(json!({ "name": name, "status": "success", "detail": "@" })).find('@').unwrap();
        let names = ["workspace", "user", "ca_certificates", "setup_commands", "env_passthrough", "amplifier_settings"];
        assert!(names.iter().all(|it| column(it) == column("image")));
    }

    #[test]
    fn the_parts_of_a_step_are_its_branches() {
        let repos = json!({ "name": "repos", "status": "partial", "detail": "1/2 repositories cloned", "error": "x", "items": [
            { "name": "a", "status": "success", "path": "/workspace/a", "commit": "0123456789abcdef" },
            { "name": "b", "status": "failed", "error": "exit 128", "output": "fatal: no\n" },
            { "name": "c", "status": "success", "path": "/c" }] });
        assert_snapshot!(block(repos.clone()), @r"
        ! repos              1/2 repositories cloned
          ├ ✓ a in /workspace/a at 0123456789ab
          ├ ✗ b: exit 128
          │   | fatal: no
          └ ✓ c in /c
        ");
        assert!(matches!(step_block(&step(repos)), Block::Step { name, .. } if name == "repos"));
    }
}
