//! `list`: the containers there are.

use coracle_lifecycle::Listed;
use coracle_runtime::{ContainerPath, Ids, PublishedPort};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::CrossSession;
use crate::context::Context;
use crate::failure::Failure;
use crate::op::Operation;

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
    compose_project: Option<String>,
    jobs_running: u32,
    expires_at: Option<String>,
}

impl Operation for List {
    const NAME: &'static str = "list";
    const ACTS: bool = false;
    type Answer = Listing;

    async fn run(self, cx: &Context) -> Result<Listing, Failure> {
        let listing = coracle_lifecycle::list(cx, &cx.store()?).await?;
        let all = cx.cross_session() != CrossSession::None;
        let seen = |it: &Listed| all || it.record.session == cx.session.as_str();
        let containers: Vec<_> = listing.containers.into_iter().filter(seen).map(row).collect();
        Ok(Listing { count: containers.len(), containers, unverified: listing.unverified })
    }
}

fn row(it: Listed) -> Row {
    let Listed { record, container } = it;
    let status = status(container.as_ref());
    let port_map = container.as_ref().map(|it| it.ports.clone()).unwrap_or_default();
    Row {
        name: record.name.to_string(),
        container_id: record.container_id,
        id: record.id.map(String::from),
        running: container.is_some_and(|it| it.running()),
        status,
        image: record.image,
        ports: port_map.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        port_map,
        purpose: record.purpose,
        persistent: record.persistent,
        created: record.created.to_string(),
        session: record.session,
        workdir: record.workdir,
        exec_user: record.exec_user,
        compose_project: None,
        jobs_running: 0,
        expires_at: None,
    }
}

/// The engine's word, or `missing`.
pub(super) fn status(container: Option<&coracle_runtime::Container>) -> String {
    container.map_or_else(|| "missing".into(), |it| it.status.to_string())
}
