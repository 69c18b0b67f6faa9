//! A new container, and the report of its steps, as a person reads them.

use coracle_compose::Service;
use coracle_runtime::PublishedPort;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::CreateResponse;
use crate::document::{Block, Document, Render, StyledText, Symbol, word};
use crate::humanize::{duration, image_label};
use crate::snapshot::without;

/// Lines of a failed command's output that are shown.
const OUTPUT_LINES: usize = 8;

/// Steps whose parts are shown when they went well, too: what was put where is news.
const SHOWN_IN_PARTS: &[&str] = &["repos", "setup_commands", "devcontainer", "dotfiles", "workspace"];

/// Room for the longest name of a step, `amplifier settings`: steps are shown one by one as they end.
const NAME_WIDTH: usize = 18;

/// Shorter durations are not shown.
const SHORTEST_MS: u64 = 50;

/// A step of a provisioning report, as responses and records hold it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReportStep {
    name: String,
    status: String,
    detail: String,
    error: Option<String>,
    duration_ms: Option<u64>,
    items: Vec<ReportItem>,
}

/// A part of a step.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReportItem {
    name: String,
    status: String,
    error: Option<String>,
    path: Option<String>,
    commit: Option<String>,
    output: Option<String>,
    duration_ms: Option<u64>,
}

/// A service of a stack.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceState {
    service: String,
    state: String,
    health: Option<String>,
    exit_code: Option<i64>,
    ports: Vec<PublishedPort>,
}

impl From<&Service> for ServiceState {
    fn from(it: &Service) -> Self {
        Self {
            service: it.service.clone(),
            state: it.state.to_string(),
            health: it.health.map(word),
            exit_code: it.exit_code,
            ports: it.ports.clone(),
        }
    }
}

/// The server of a purpose.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ServerSummary {
    url: Option<String>,
    password: Option<String>,
}

/// What is shown of a container. One that is used again is described by the response of its record.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerSummary {
    container: String,
    container_id: String,
    forked_from: Option<String>,
    image: String,
    purpose: Option<String>,
    user: String,
    workdir: String,
    coracle_command: String,
    ports: Vec<PublishedPort>,
    server: ServerSummary,
    compose_services: Option<Vec<ServiceState>>,
    provisioning_ok: Option<bool>,
    duration_ms: Option<u64>,
    not_included: Option<Vec<String>>,
    provisioning_report: Vec<ReportStep>,
}

impl Render for CreateResponse {
    fn render(&self, _: Timestamp) -> Document {
        let summary = serde_json::to_value(self).and_then(serde_json::from_value::<ContainerSummary>);
        summary.unwrap_or_default().document()
    }
}

impl ContainerSummary {
    fn document(&self) -> Document {
        // Of the steps that did not happen only a missing workspace is news.
        let news = |it: &&ReportStep| it.status != "skipped" || it.name == "workspace";
        let steps = self.provisioning_report.iter().filter(news).map(ReportStep::block).collect();
        let ready = StyledText::new().name(&self.container);
        let ready = match self.provisioning_ok {
            Some(false) => ready.plain(" is made, but ").doubtful("not everything worked"),
            _ => ready.plain(" is ready"),
        };
        let ready = match self.duration_ms {
            Some(ms) => ready.plain(" ").dim(format!("({})", duration(ms))),
            None => ready,
        };
        let next = format!("coracle exec {} -- COMMAND, or {}", self.container, self.coracle_command);
        let failed = |it: &ReportStep| ["failed", "partial"].contains(&it.status.as_str());
        let is_incomplete = self.provisioning_report.iter().any(failed);
        Document { blocks: steps, is_incomplete, ..Document::default() }
            .then(ready)
            .facts([
                ("id", self.container_id.as_str().into()),
                ("fork of", self.forked_from.as_deref().unwrap_or_default().into()),
                ("image", image_label(&self.image, self.purpose.as_deref()).into()),
                ("user", self.user.as_str().into()),
                ("workdir", self.workdir.as_str().into()),
                ("ports", ports(&self.ports).into()),
                ("server", self.server.url.as_deref().unwrap_or_default().into()),
                ("password", self.server.password.as_deref().unwrap_or_default().into()),
                ("services", services(self.compose_services.as_deref().unwrap_or_default()).into()),
                ("next", next.into()),
            ])
            .and_lines(without(self.not_included.as_deref().unwrap_or_default()))
    }
}

/// A step that a call reports while it runs.
#[must_use]
pub fn step_block(step: &Value) -> Block {
    serde_json::from_value::<ReportStep>(step.clone()).unwrap_or_default().block()
}

/// The steps of a report that failed, in whole or in part.
pub(crate) fn failed_steps(report: &Value) -> Vec<Block> {
    let steps: Vec<ReportStep> = serde_json::from_value(report.clone()).unwrap_or_default();
    let failed = steps.iter().filter(|it| ["failed", "partial"].contains(&it.status.as_str()));
    failed.map(ReportStep::block).collect()
}

impl ReportStep {
    fn block(&self) -> Block {
        Block::Step { name: self.name.clone(), lines: self.lines() }
    }

    /// The step, with its parts below it.
    fn lines(&self) -> Vec<StyledText> {
        let all = SHOWN_IN_PARTS.contains(&self.name.as_str());
        let is_shown = |it: &&ReportItem| all || !["success", "skipped"].contains(&it.status.as_str());
        let items: Vec<&ReportItem> = self.items.iter().filter(is_shown).collect();
        let error = match self.error.as_deref().unwrap_or_default() {
            "" => String::new(),
            // What failed is shown part by part, if there are parts.
            _ if items.iter().any(|it| it.status == "failed") => String::new(),
            error => format!(": {error}"),
        };
        let name = self.name.replace('_', " ");
        let line = StyledText::new().symbol(Symbol::of_status(&self.status));
        let line = line.plain(format!(" {name:<NAME_WIDTH$} {}{error}", self.detail));
        let mut lines = vec![with_duration(line, self.duration_ms)];
        for (at, item) in items.iter().enumerate() {
            let (branch, stem) = if at + 1 == items.len() { ("└", " ") } else { ("├", "│") };
            lines.push(StyledText::from("  ").dim(branch).plain(" ").text(item.line()));
            let output = item.output.as_deref().filter(|_| item.status == "failed").unwrap_or_default();
            let output: Vec<&str> = output.lines().collect();
            let last = &output[output.len().saturating_sub(OUTPUT_LINES)..];
            lines.extend(last.iter().map(|line| StyledText::from("  ").dim(format!("{stem}   | {line}"))));
        }
        lines
    }
}

impl ReportItem {
    /// Its name, and where it went or why it failed.
    fn line(&self) -> StyledText {
        let [error, path, commit] = [&self.error, &self.path, &self.commit].map(|it| it.as_deref().unwrap_or_default());
        let outcome = match (error, path, commit) {
            ("", "", _) => String::new(),
            ("", path, "") => format!(" in {path}"),
            ("", path, commit) => format!(" in {path} at {}", commit.chars().take(12).collect::<String>()),
            (error, ..) => format!(": {error}"),
        };
        let line = StyledText::new().symbol(Symbol::of_status(&self.status)).plain(format!(" {}{outcome}", self.name));
        with_duration(line, self.duration_ms)
    }
}

fn with_duration(line: StyledText, ms: Option<u64>) -> StyledText {
    match ms {
        Some(ms) if ms >= SHORTEST_MS => line.plain(" ").dim(format!("({})", duration(ms))),
        _ => line,
    }
}

/// The services of a stack: how each is, and where it answers.
pub(crate) fn services(services: &[ServiceState]) -> String {
    let one = |it: &ServiceState| {
        let state = match (&it.health, it.exit_code) {
            (Some(health), _) => health.clone(),
            (None, Some(code)) => format!("ended with {code}"),
            (None, None) => it.state.clone(),
        };
        let at = if it.ports.is_empty() { String::new() } else { format!(" at {}", ports(&it.ports)) };
        format!("{} ({state}){at}", it.service)
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

    use super::{ContainerSummary, ServiceState, services, step_block};
    use crate::document::{Block, Document};

    fn block(step: &Value) -> String {
        Document { blocks: vec![step_block(step)], ..Document::default() }.to_string()
    }

    #[test]
    fn services_are_shown_with_their_state_and_ports() {
        let port = json!({ "address": "127.0.0.1", "host": 32768, "container": 5432, "protocol": "tcp" });
        let answer: Vec<ServiceState> = serde_json::from_value(json!([
            { "service": "db", "state": "running", "health": "healthy", "exit_code": null, "ports": [port] },
            { "service": "once", "state": "exited", "health": null, "exit_code": 0, "ports": [] },
        ]))
        .unwrap();
        assert_snapshot!(services(&answer), @r"db (healthy) at 127.0.0.1:32768 -> 5432; once (ended with 0)");
    }

    fn summary() -> ContainerSummary {
        let failed = json!({ "name": "apt-get update", "status": "failed", "error": "exit 100", "duration_ms": 6400, "output": "E: no\u{7} network\n" });
        serde_json::from_value(json!({ "container": "web", "container_id": "0123", "image": "ubuntu:24.04", "duration_ms": 7640,
            "user": "1000:1000", "workdir": "/workspace", "coracle_command": "coracle shell web", "provisioning_ok": false,
            "ports": [{ "address": "127.0.0.1", "host": 8080, "container": 80, "protocol": "tcp" },
                { "address": "127.0.0.1", "host": 53, "container": 53, "protocol": "udp" }],
            "provisioning_report": [
                { "name": "image", "status": "success", "detail": "ubuntu:24.04 was here", "duration_ms": 12 },
                { "name": "workspace", "status": "skipped", "detail": "the working directory is not mounted: it is your home" },
                { "name": "git", "status": "skipped", "detail": "" },
                { "name": "user", "status": "failed", "detail": "no user", "error": "no such id" },
                { "name": "setup_commands", "status": "partial", "detail": "1/2 commands succeeded", "duration_ms": 6500,
                    "error": "`apt-get update`: exit 100", "items": [{ "name": "true", "status": "success" }, failed] }] }))
        .unwrap()
    }

    #[test]
    fn a_new_container_is_shown_with_its_steps() {
        assert!(summary().document().is_incomplete);
        assert_snapshot!(summary().document(), @r"
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
    fn a_skipped_step_leaves_nothing_incomplete() {
        let check = |statuses: &[&str]| {
            let steps: Vec<Value> = statuses.iter().map(|it| json!({ "name": "x", "status": it })).collect();
            let summary: ContainerSummary = serde_json::from_value(json!({ "provisioning_report": steps })).unwrap();
            summary.document().is_incomplete
        };
        assert!(!check(&[]) && !check(&["success", "skipped"]));
        assert!(check(&["success", "partial"]) && check(&["failed"]));
    }

    #[test]
    fn the_details_of_all_steps_begin_in_one_column() {
        let column =
            |name: &str| block(&json!({ "name": name, "status": "success", "detail": "@" })).find('@').unwrap();
        let names = ["workspace", "user", "ca_certificates", "setup_commands", "env_passthrough", "amplifier_settings"];
        assert!(names.iter().all(|it| column(it) == column("image")));
    }

    #[test]
    fn the_parts_of_a_step_are_its_branches() {
        let step = json!({ "name": "repos", "status": "partial", "detail": "1/2 repositories cloned", "error": "x", "items": [
            { "name": "a", "status": "success", "path": "/workspace/a", "commit": "0123456789abcdef" },
            { "name": "b", "status": "failed", "error": "exit 128", "output": "fatal: no\n" },
            { "name": "c", "status": "success", "path": "/c" }] });
        assert_snapshot!(block(&step), @r"
        ! repos              1/2 repositories cloned
          ├ ✓ a in /workspace/a at 0123456789ab
          ├ ✗ b: exit 128
          │   | fatal: no
          └ ✓ c in /c
        ");
        assert!(matches!(step_block(&step), Block::Step { name, .. } if name == "repos"));
    }
}
