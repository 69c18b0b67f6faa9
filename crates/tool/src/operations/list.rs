//! `list`: the containers there are.

use std::collections::BTreeMap;

use coracle_lifecycle::ContainerEntry;
use coracle_runtime::{ContainerPath, EngineKind, Ids, ProjectName, PublishedPort, RecordId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::commands::running;
use crate::config::CrossSession;
use crate::context::Context;
use crate::dispatch::Operation;
use crate::failure::Failure;

/// List the containers of this session, and those of others that it may see.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {}

/// The answer (containers.md 14.1).
#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    containers: Vec<Row>,
    count: usize,
    unverified: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    container_id: Option<String>,
    id: Option<String>,
    status: String,
    running: bool,
    image: String,
    ports: String,
    port_map: Vec<PublishedPort>,
    purpose: Option<String>,
    persistent: bool,
    created: String,
    session: String,
    workdir: ContainerPath,
    exec_user: Option<Ids>,
    engine: EngineKind,
    compose_project: Option<ProjectName>,
    /// Services of its stack, by name.
    compose_services: Vec<String>,
    jobs_running: usize,
    expires_at: Option<String>,
}

impl Operation for List {
    const NAME: &'static str = "list";
    const ACTS: bool = false;
    type Answer = Listing;

    async fn run(self, cx: &Context) -> Result<Listing, Failure> {
        let listing = coracle_lifecycle::list_recent(cx.engines(), &cx.store()?).await?;
        let jobs = jobs_running(cx, &listing.containers).await;
        let all = cx.cross_session() != CrossSession::None;
        let seen = |it: &ContainerEntry| all || it.record.session == cx.call.session.as_str();
        let told = |it: ContainerEntry| {
            let running = jobs.get(&it.record.record_id).copied().unwrap_or(0);
            let expires_at = crate::removal::expiry(cx, &it.record);
            let services = it.record.compose_project.as_ref().and_then(|it| listing.services.get(it.as_str()));
            let compose_services = services.cloned().unwrap_or_default();
            Row { jobs_running: running, expires_at, compose_services, ..row(it) }
        };
        let containers: Vec<_> = listing.containers.into_iter().filter(seen).map(told).collect();
        Ok(Listing { count: containers.len(), containers, unverified: listing.unverified })
    }
}

/// Background jobs by container, of all that answer at once. Each that was started is in its record, so most guests need
/// not be asked.
async fn jobs_running(cx: &Context, listed: &[ContainerEntry]) -> BTreeMap<RecordId, usize> {
    let mut asked = JoinSet::new();
    let running_with_jobs =
        |it: &&ContainerEntry| !it.record.jobs.is_empty() && it.container.as_ref().is_some_and(|it| it.running());
    for it in listed.iter().filter(running_with_jobs) {
        let (cx, record) = (cx.clone(), it.record.clone());
        asked.spawn(async move { (record.record_id.clone(), running(&cx, &record).await) });
    }
    asked.join_all().await.into_iter().collect()
}

fn row(it: ContainerEntry) -> Row {
    let ContainerEntry { record, container } = it;
    let status = status(container.as_deref());
    let port_map = container.as_ref().map(|it| it.ports.clone()).unwrap_or_default();
    Row {
        name: record.name.to_string(),
        container_id: record.container_id.clone(),
        id: record.id.as_ref().map(ToString::to_string),
        running: container.is_some_and(|it| it.running()),
        status,
        image: record.image.clone(),
        ports: port_map.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        port_map,
        purpose: record.purpose.clone(),
        persistent: record.persistent,
        created: record.created.to_string(),
        session: record.session.clone(),
        workdir: record.workdir.clone(),
        exec_user: record.exec_user,
        engine: record.engine,
        compose_project: record.compose_project.clone(),
        compose_services: Vec::new(),
        jobs_running: 0,
        expires_at: None,
    }
}

/// The engine's word, or `missing`.
pub(super) fn status(container: Option<&coracle_runtime::Container>) -> String {
    container.map_or_else(|| "missing".into(), |it| it.status.to_string())
}
