//! `status`: all that is known of one container.

use coracle_lifecycle::{GuestRecord, Record};
use coracle_runtime::{ContainerPath, Handle, Ids, PublishedPort};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::create::LimitsAnswer;
use crate::args::Name;
use crate::context::Context;
use crate::failure::Failure;
use crate::op::Operation;
use crate::reach::{Act, reach};

/// Tell all that is known of one container.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StatusOf {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Ask for health as well.
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
    metadata: Value,
    exit_code: Option<i64>,
    oom_killed: bool,
    exec_user: Option<Ids>,
    workdir: ContainerPath,
    network: String,
    ports: Vec<PublishedPort>,
    limits: Option<LimitsAnswer>,
    /// How commands run: by a guest (`bound` or `uploaded`), or `none`.
    guest: &'static str,
    usage: Option<Value>,
    jobs_running: usize,
    /// Variables that were lost when the container was started anew.
    env_missing: Vec<String>,
    session: String,
    expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    health: Option<Value>,
}

impl Operation for StatusOf {
    const NAME: &'static str = "status";
    const ACTS: bool = false;
    type Answer = Known;

    async fn run(self, cx: &Context) -> Result<Known, Failure> {
        let found = reach(cx, &self.container, Act::Use).await?;
        let (record, container) = (found.record, found.container);
        let mut metadata = serde_json::to_value(&record).map_err(Failure::internal)?;
        if let Value::Object(fields) = &mut metadata {
            fields.remove("env_plain");
            fields.remove("held");
        }
        let there = container.as_ref();
        let jobs_running = jobs_running(cx, &record).await;
        let health = self
            .health_check
            .unwrap_or(false)
            .then(|| json!({ "guest": record.guest.as_ref().map_or("none", GuestRecord::label), "image": "none" }));
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
            usage: None,
            jobs_running,
            env_missing: record.held.missing,
            session: record.session,
            expires_at: None,
            health,
        })
    }
}

/// Background jobs that run; none where no guest answers at once.
async fn jobs_running(cx: &Context, record: &Record) -> usize {
    let Ok(store) = cx.store() else { return 0 };
    let Some(link) = cx.links().at_hand(&store, record).await else { return 0 };
    let jobs = coracle_jobs::list(&link).await.unwrap_or_default();
    jobs.iter().filter(|it| it.running() && !it.foreground).count()
}
