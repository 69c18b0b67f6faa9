//! `status`: all that is known of one container.

use std::time::Duration;

use coracle_compose::Service;
use coracle_lifecycle::{Finding, GuestRecord, Record, Role, compared, read_only_paths};
use coracle_runtime::{
    Container, ContainerPath, ContainerRuntime, Handle, Ids, LinkSettings, ProjectName, PublishedPort, Usage,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::arg_types::Name;
use crate::commands::running;
use crate::context::Context;
use crate::create::LimitsAnswer;
use crate::dispatch::Operation;
use crate::failure::Failure;
use crate::target::{Act, reach};
use crate::warning::Warning;

/// A guest that has not answered by then is lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// Show everything that is known about one container.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusOf {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Ask for health as well; of `wait_healthy`, wait for the health check that the image brings.
    #[schemars(extend("default" = false))]
    health_check: Option<bool>,
}

/// The answer (containers.md 14.2).
#[derive(Debug, Serialize)]
pub(crate) struct Known {
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
    exit_code: Option<i64>,
    oom_killed: bool,
    exec_user: Option<Ids>,
    workdir: ContainerPath,
    network: String,
    ports: Vec<PublishedPort>,
    limits: Option<LimitsAnswer>,
    /// How commands run: by a guest (`bound` or `uploaded`), or `none`.
    guest: &'static str,
    usage: Option<Usage>,
    jobs_running: usize,
    /// Variables that were lost when the container was started anew.
    env_missing: Vec<String>,
    /// Protected paths in directories of the host, which commands cannot change. `git config --global` works.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    read_only_paths: Vec<String>,
    /// Protected paths in directories of the host that are not what they were.
    review: Vec<Finding>,
    session: String,
    expires_at: Option<String>,
    compose_project: Option<ProjectName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    compose_services: Option<Vec<Service>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<HealthAnswer>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
}

/// How it stands, by those who know.
#[derive(Debug, Serialize)]
struct HealthAnswer {
    /// `ok`, `lost` or `none`.
    guest: &'static str,
    /// Of the image's own check: `healthy`, `unhealthy`, `starting` or `none`.
    image: Value,
}

impl Operation for StatusOf {
    const NAME: &'static str = "status";
    const ACTS: bool = false;
    type Answer = Known;

    async fn run(self, cx: &Context) -> Result<Known, Failure> {
        let found = reach(cx, &self.container, Act::Look).await?;
        let (runtime, record, container) = (found.runtime, found.record, found.container);
        let metadata = metadata(&record)?;
        let metadata = matches!(record.role, Role::Primary | Role::Adopted).then_some(metadata);
        let compose_services = match &record.compose_project {
            Some(project) => Some(coracle_compose::services(&*runtime, project).await?),
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
                // What cannot be told is left out: all else that is known is worth the answer.
                Some(it) => runtime.usage(&it.id).await.unwrap_or_default(),
                None => None,
            }
        };
        let (jobs_running, usage, health) = tokio::join!(running(cx, &record), usage, health);
        let expires_at = crate::removal::expiry(cx, &record);
        let read_only_paths = read_only_paths(&record);
        let watched = record.clone();
        let review = tokio::task::spawn_blocking(move || compared(&watched)).await.map_err(Failure::internal)?;
        let warnings = crate::warning::to_review(&review).into_iter().collect();
        Ok(Known {
            status: super::list::status(there),
            running: there.is_some_and(coracle_runtime::Container::running),
            started_at: there.and_then(|it| it.started_at.clone()),
            exit_code: there.and_then(|it| it.exit_code),
            oom_killed: there.is_some_and(|it| it.oom_killed),
            network: there.and_then(|it| it.networks.first().cloned()).unwrap_or_else(|| "none".into()),
            ports: there.map(|it| it.ports.clone()).unwrap_or_default(),
            limits: there.map(|it| LimitsAnswer::of(&it.limits)),
            guest: record.guest.as_ref().map_or("none", GuestRecord::label),
            container: record.name.to_string(),
            container_id: record.container_id,
            id: record.id.map(String::from),
            image: record.image,
            image_id: record.image_id.map(String::from),
            metadata,
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
            warnings,
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
    let ask = async {
        let store = cx.store().ok()?;
        let link = match cx.links().at_hand(&store, record).await {
            Some(link) => link,
            None => runtime.link(&container.id, None, LinkSettings::default()).await.ok()?,
        };
        link.jobs().await.ok()
    };
    if tokio::time::timeout(PATIENCE, ask).await.ok().flatten().is_some() { "ok" } else { "lost" }
}
