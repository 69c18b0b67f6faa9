//! `status`: all that is known of one container.

use std::time::Duration;

use coracle_client::LinkSettings;
use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText, joined, optional, word};
use coracle_context::failure::Failure;
use coracle_context::humanize::{ago, bytes, count, until_expiry};
use coracle_context::warning::{replaced_mounts, to_review};
use coracle_lifecycle::{Finding, GuestRecord, Record, Role, compared, read_only_paths};
use coracle_runtime::{Container, ContainerRuntime, ContainerUsage, PublishedPort};
use coracle_types::{ContainerPath, Handle, Ids, IsolationKind, ProjectName};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::commands::running;
use crate::create::{LimitsAnswer, ServiceAnswer, failed_steps, ports, services};
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::shapes::{FindingShape, PortShape, UsageShape};
use crate::target::{Access, reach};

/// A guest that has not answered by then is lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show one container in detail.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct StatusOf {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    pub container: Handle,
    /// Ask for health as well; of `wait_healthy`, wait for the health check that the image brings.
    #[schemars(extend("default" = false))]
    pub health_check: Option<bool>,
}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub struct StatusResponse {
    container: String,
    container_id: Option<String>,
    id: Option<String>,
    running: bool,
    status: String,
    started_at: Option<String>,
    image: String,
    image_id: Option<String>,
    /// Not of a service: nothing is remembered of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Value>,
    /// The record that `metadata` is made from.
    #[serde(skip)]
    record: Option<Box<Record>>,
    exit_code: Option<i64>,
    oom_killed: bool,
    #[schemars(with = "Option<String>")]
    exec_user: Option<Ids>,
    #[schemars(with = "String")]
    workdir: ContainerPath,
    network: String,
    #[schemars(with = "Vec<PortShape>")]
    ports: Vec<PublishedPort>,
    limits: Option<LimitsAnswer>,
    /// How commands run: by a guest (`bound` or `uploaded`), or `none`.
    guest: &'static str,
    /// What stands between it and this machine, where the engine tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    isolation: Option<IsolationKind>,
    #[schemars(with = "Option<UsageShape>")]
    /// What it uses now, if it runs and the engine says so.
    pub usage: Option<ContainerUsage>,
    jobs_running: usize,
    /// Variables that were lost when the container was restarted.
    env_missing: Vec<String>,
    /// Protected paths in directories of the host, which commands cannot change. `git config --global` works.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    read_only_paths: Vec<String>,
    /// Protected paths in directories of the host that are not what they were.
    #[schemars(with = "Vec<FindingShape>")]
    review: Vec<Finding>,
    session: String,
    expires_at: Option<String>,
    #[schemars(with = "Option<String>")]
    compose_project: Option<ProjectName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compose_services: Option<Vec<ServiceAnswer>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<HealthAnswer>,
}

/// How it stands, by those who know.
#[derive(Debug, JsonSchema, Serialize)]
struct HealthAnswer {
    /// `ok`, `lost` or `none`.
    guest: &'static str,
    /// Of the image's own check: `healthy`, `unhealthy`, `starting` or `none`.
    image: Value,
}

impl Operation for StatusOf {
    const NAME: &'static str = "status";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<StatusResponse>;
    type Response = StatusResponse;

    async fn run(self, cx: &Context) -> Result<StatusResponse, Failure> {
        let found = reach(cx, &self.container, Access::Read).await?;
        let (runtime, record, container) = (found.runtime, found.record, found.container);
        let metadata = metadata(&record)?;
        let is_shown = matches!(record.role, Role::Primary | Role::Adopted);
        let metadata = is_shown.then_some(metadata);
        let shown_record = is_shown.then(|| Box::new(record.clone()));
        let compose_services = match &record.compose_project {
            Some(project) => {
                let services = coracle_compose::services(&*runtime, project).await?;
                Some(services.into_iter().map(ServiceAnswer::from).collect())
            }
            None => None,
        };
        let there = container.as_ref();
        let health = async {
            match self.health_check.unwrap_or(false) {
                true => Some(health(cx, &*runtime, &record, there).await),
                false => None,
            }
        };
        let usage = async {
            match there.filter(|it| it.running()) {
                // Unknown usage is left out rather than failing the call.
                Some(it) => runtime.usage(&it.id).await.unwrap_or_default(),
                None => None,
            }
        };
        let (jobs_running, usage, health) = tokio::join!(running(cx, &record), usage, health);
        let expires_at = coracle_context::removal::expiry(cx, &record);
        let read_only_paths = read_only_paths(&record);
        let watched = record.clone();
        let review = tokio::task::spawn_blocking(move || compared(&watched)).await.map_err(Failure::internal)?;
        let replaced = match there.filter(|it| it.running()) {
            Some(_) => replaced_mounts(&record).await,
            None => None,
        };
        cx.warn(to_review(&review).into_iter().chain(replaced));
        Ok(StatusResponse {
            status: super::list::status(there),
            running: there.is_some_and(coracle_runtime::Container::running),
            started_at: there.and_then(|it| it.started_at.clone()),
            exit_code: there.and_then(|it| it.exit_code),
            oom_killed: there.is_some_and(|it| it.oom_killed),
            network: crate::target::network_name(record.proxied, there.map_or(&[][..], |it| &it.networks)),
            ports: there.map(|it| it.ports.clone()).unwrap_or_default(),
            limits: there.map(|it| LimitsAnswer::from_limits(&it.limits)),
            guest: record.guest.as_ref().map_or("none", GuestRecord::label),
            isolation: there.and_then(|it| it.isolation),
            container: record.name.to_string(),
            container_id: record.container_id,
            id: record.id.map(String::from),
            image: record.image,
            image_id: record.image_id.map(String::from),
            metadata,
            record: shown_record,
            exec_user: record.exec_user,
            workdir: record.workdir,
            usage,
            jobs_running,
            env_missing: record.held.missing,
            read_only_paths,
            review: review.findings,
            session: record.session,
            expires_at,
            compose_project: record.compose_project,
            compose_services,
            health,
        })
    }
}

/// The record without what is for us alone, and without values of variables.
fn metadata(record: &Record) -> Result<Value, Failure> {
    let mut metadata = serde_json::to_value(record).map_err(Failure::internal)?;
    if let Value::Object(fields) = &mut metadata {
        for inner in ["env_plain", "held", "asked", "answer", "watched", "swept"] {
            fields.remove(inner);
        }
        if let Some(Value::Object(main)) = fields.get_mut("main") {
            main.remove("env");
        }
    }
    Ok(metadata)
}

async fn health(
    cx: &Context,
    runtime: &dyn ContainerRuntime,
    record: &Record,
    container: Option<&Container>,
) -> HealthAnswer {
    let running = container.filter(|it| it.running());
    let image = match running {
        Some(it) => runtime.check_health(&it.id).await.ok().flatten(),
        None => None,
    };
    let image = image.map_or_else(|| json!("none"), |it| json!(it));
    HealthAnswer { guest: guest(cx, runtime, record, running).await, image }
}

/// Whether the guest answers.
async fn guest(
    cx: &Context,
    runtime: &dyn ContainerRuntime,
    record: &Record,
    running: Option<&Container>,
) -> &'static str {
    if record.guest.is_none() {
        return "none";
    }
    let Some(container) = running else { return "lost" };
    let probe = async {
        let store = cx.store().ok()?;
        let link = match cx.links().direct_link(&store, record).await {
            Some(link) => link,
            None => runtime.link(&container.id, None, LinkSettings::default()).await.ok()?,
        };
        link.jobs().await.ok()
    };
    if tokio::time::timeout(PATIENCE, probe).await.ok().flatten().is_some() { "ok" } else { "lost" }
}

impl Render for StatusResponse {
    /// What a person asks first: does it run, from what, with which way in and which limits.
    fn render(&self, now: Timestamp) -> Document {
        let record = self.record.as_deref();
        let mounts = record.iter().flat_map(|it| &it.mounts);
        let mounts = joined(mounts.map(|it| format!("{} -> {} ({})", it.host.display(), it.container, word(it.mode))));
        let review = joined(self.review.iter().map(|it| format!("{} ({})", it.path.display(), word(it.change))));
        let is_persistent = record.is_some_and(|it| it.persistent);
        let created = record.map(|it| ago(&it.created.to_string(), now));
        let jobs = (self.jobs_running > 0).then(|| count(self.jobs_running as u64, "job", "jobs") + " running");
        let document = Document::line(self.state_line(now)).facts([
            ("id", self.container_id.clone().unwrap_or_default().into()),
            ("image", self.image.as_str().into()),
            ("engine", optional(record.map(|it| it.engine)).into()),
            ("made", created.unwrap_or_default().into()),
            ("user", self.user().into()),
            ("workdir", self.workdir.to_string().into()),
            ("mounts", mounts.into()),
            ("ports", ports(&self.ports).into()),
            ("services", services(self.compose_services.as_deref().unwrap_or_default()).into()),
            ("network", self.network.as_str().into()),
            ("isolation", optional(self.isolation).into()),
            ("limits", self.limits.as_ref().map(LimitsAnswer::summary).unwrap_or_default().into()),
            ("env", record.map(|it| it.env_keys.join(", ")).unwrap_or_default().into()),
            ("session", self.session.as_str().into()),
            ("persistent", if is_persistent { "yes" } else { "" }.into()),
            ("expires", until_expiry(self.expires_at.as_deref().unwrap_or_default(), now).into()),
            ("uses", self.usage.as_ref().map(usage).unwrap_or_default().into()),
            ("jobs", jobs.unwrap_or_default().into()),
            ("health", self.health.as_ref().map(HealthAnswer::summary).unwrap_or_default().into()),
            ("read-only", self.read_only_paths.join(", ").into()),
            ("review", review.into()),
        ]);
        let failed = record.map(|it| failed_steps(&it.provisioning_report)).unwrap_or_default();
        Document { blocks: [document.blocks, failed].concat(), ..document }
    }
}

impl StatusResponse {
    /// Bytes of memory that it may use.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        self.limits.as_ref().and_then(|limits| limits.memory)
    }

    fn state_line(&self, now: Timestamp) -> StyledText {
        let line = StyledText::new().name(&self.container).plain(" ");
        if self.running {
            let started = ago(self.started_at.as_deref().unwrap_or_default(), now);
            return line.good(&self.status).plain(format!(", started {started}"));
        }
        let code = self.exit_code.map(|it| format!(" with {it}")).unwrap_or_default();
        let line = line.doubtful(&self.status).plain(code);
        if self.oom_killed { line.plain(", ").bad("out of memory") } else { line }
    }

    fn user(&self) -> String {
        let ids = optional(self.exec_user);
        match self.record.as_ref().and_then(|it| it.user_name.as_ref()) {
            Some(name) => format!("{name} ({ids})"),
            None => ids,
        }
    }
}

impl HealthAnswer {
    fn summary(&self) -> String {
        let image = match word(&self.image).as_str() {
            "none" => String::new(),
            state => format!(", image {state}"),
        };
        format!("guest {}{image}", self.guest)
    }
}

fn usage(it: &ContainerUsage) -> String {
    let ContainerUsage { memory_bytes, pids, cpu_percent, disk_bytes, cpu_seconds: _ } = it;
    let processes = count(*pids, "process", "processes");
    let disk = disk_bytes.map(|it| format!(", {} written", bytes(it))).unwrap_or_default();
    format!("{} of memory, {processes}, {cpu_percent} % of a core{disk}", bytes(*memory_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> StatusResponse {
        StatusResponse {
            container: "web".into(),
            container_id: None,
            id: None,
            running: true,
            status: "running".into(),
            started_at: Some("2026-11-22T11:59:50Z".into()),
            image: "ubuntu:24.04".into(),
            image_id: None,
            metadata: None,
            record: None,
            exit_code: None,
            oom_killed: false,
            exec_user: Ids::parse("1000:1000").ok(),
            workdir: ContainerPath::parse("/workspace").unwrap(),
            network: "bridge".into(),
            ports: serde_json::from_value(
                json!([{ "address": "127.0.0.1", "host": 8080, "container": 80, "protocol": "tcp" }]),
            )
            .unwrap(),
            limits: None,
            guest: "bound",
            isolation: None,
            usage: None,
            jobs_running: 0,
            env_missing: Vec::new(),
            read_only_paths: Vec::new(),
            review: Vec::new(),
            session: "default".into(),
            expires_at: None,
            compose_project: None,
            compose_services: None,
            health: None,
        }
    }

    #[test]
    fn a_running_container_shows_what_it_uses_and_when_it_expires() {
        let usage = ContainerUsage {
            memory_bytes: 1 << 20,
            pids: 2,
            cpu_percent: 1.5,
            disk_bytes: Some(4096),
            cpu_seconds: None,
        };
        let it = StatusResponse {
            usage: Some(usage),
            jobs_running: 1,
            health: Some(HealthAnswer { guest: "ok", image: json!("none") }),
            expires_at: Some("2026-11-23T11:00:00.000Z".into()),
            limits: Some(LimitsAnswer::from_limits(&coracle_runtime::Limits {
                pids: Some(1024),
                ..Default::default()
            })),
            ..status()
        };
        insta::assert_snapshot!(coracle_context::document::rendered(&it, "2026-11-22T12:00:00Z"), @r"
        web running, started just now
          image    ubuntu:24.04
          user     1000:1000
          workdir  /workspace
          ports    127.0.0.1:8080 -> 80
          network  bridge
          limits   1024 processes
          session  default
          expires  in 23 h, unless it is used
          uses     1 MiB of memory, 2 processes, 1.5 % of a core, 4 KiB written
          jobs     1 job running
          health   guest ok
        ");
    }

    #[tokio::test]
    async fn a_record_adds_what_was_created_and_the_steps_that_failed() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path()).with_fake(coracle_runtime::FakeRuntime::new());
        let process = coracle_prepare::Process::new(cx);
        let call = async |call: Value| {
            let input = crate::CallInput::Object(call.as_object().cloned().unwrap());
            crate::execute(crate::operations::ALL, &process, input).await
        };
        let image = coracle_runtime::fake::LOCAL_IMAGE;
        let create = json!({ "operation": "create", "name": "web", "image": image, "mount_cwd": false,
            "env": { "A": "1" }, "setup_commands": ["exit 3"] });
        assert_eq!(call(create).await.json["success"], true);
        let status = call(json!({ "operation": "status", "container": "web" })).await;
        let text = status.response.unwrap().render(Timestamp::now()).to_string();
        for line in ["  engine   fake", "  made     just now", "  env      A", "  session  "] {
            assert!(text.contains(&format!("\n{line}")), "{line}: {text}");
        }
        assert!(text.starts_with("web running, started just now\n  id       "), "{text}");
        assert!(text.contains("\n✗ setup commands "), "{text}");
    }

    #[test]
    fn a_container_that_ended_says_how() {
        let ended = StatusResponse {
            running: false,
            status: "exited".into(),
            exit_code: Some(137),
            oom_killed: true,
            ..status()
        };
        let text = coracle_context::document::rendered(&ended, "2026-11-22T12:00:00Z");
        assert_eq!(text.lines().next().unwrap(), "web exited with 137, out of memory");
    }
}
