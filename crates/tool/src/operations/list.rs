//! `list`: the containers there are.

use std::collections::BTreeMap;

use coracle_lifecycle::ContainerEntry;
use coracle_runtime::{ContainerPath, EngineKind, Ids, ProjectName, PublishedPort, RecordId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use crate::commands::running;
use crate::config::CrossSession;
use crate::context::Context;
use crate::dispatch::{Effect, Operation};
use crate::document::{Column, Document, Render, StyledText, joined};
use crate::failure::Failure;
use crate::humanize::{ago, count};
use crate::schema::result_schema;
use jiff::Timestamp;

/// List the containers of this session, and those of others that it may see.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct List {}

/// The answer (containers.md 14.1).
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ListResponse {
    containers: Vec<ContainerRow>,
    count: usize,
    unverified: Vec<String>,
}

#[derive(Debug, JsonSchema, Serialize)]
struct ContainerRow {
    name: String,
    container_id: Option<String>,
    id: Option<String>,
    status: String,
    running: bool,
    image: String,
    ports: String,
    #[schemars(with = "Vec<Map<String, Value>>")]
    port_map: Vec<PublishedPort>,
    purpose: Option<String>,
    persistent: bool,
    created: String,
    session: String,
    #[schemars(with = "String")]
    workdir: ContainerPath,
    #[schemars(with = "Option<String>")]
    exec_user: Option<Ids>,
    #[schemars(with = "String")]
    engine: EngineKind,
    #[schemars(with = "Option<String>")]
    compose_project: Option<ProjectName>,
    /// Services of its stack, by name.
    compose_services: Vec<String>,
    jobs_running: usize,
    expires_at: Option<String>,
}

impl Operation for List {
    const NAME: &'static str = "list";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<ListResponse>;
    type Response = ListResponse;

    async fn run(self, cx: &Context) -> Result<ListResponse, Failure> {
        let listing = coracle_lifecycle::list_recent(cx.engines(), &cx.store()?).await?;
        let jobs = jobs_running(cx, &listing.containers).await;
        let all = cx.cross_session() != CrossSession::None;
        let seen = |it: &ContainerEntry| all || it.record.session == cx.call.session.as_str();
        let shown = |it: ContainerEntry| {
            let running = jobs.get(&it.record.record_id).copied().unwrap_or(0);
            let expires_at = crate::removal::expiry(cx, &it.record);
            let services = it.record.compose_project.as_ref().and_then(|it| listing.services.get(it.as_str()));
            let compose_services = services.cloned().unwrap_or_default();
            ContainerRow { jobs_running: running, expires_at, compose_services, ..row(it) }
        };
        let containers: Vec<_> = listing.containers.into_iter().filter(seen).map(shown).collect();
        Ok(ListResponse { count: containers.len(), containers, unverified: listing.unverified })
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

fn row(it: ContainerEntry) -> ContainerRow {
    let ContainerEntry { record, container } = it;
    let status = status(container.as_deref());
    let port_map = container.as_ref().map(|it| it.ports.clone()).unwrap_or_default();
    ContainerRow {
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
pub(crate) fn status(container: Option<&coracle_runtime::Container>) -> String {
    container.map_or_else(|| "missing".into(), |it| it.status.to_string())
}

/// Unverified containers that are named.
const NAMED: usize = 3;

const COLUMNS: [Column; 8] = [
    Column::fixed("NAME"),
    Column::fixed("STATUS"),
    Column::flexible("IMAGE"),
    Column::flexible("PORTS").or_left_out(1),
    Column::flexible("SERVICES").or_left_out(2),
    Column::fixed("CREATED").or_left_out(3),
    Column::fixed("ENGINE").or_left_out(4),
    Column::flexible("SESSION").or_left_out(5),
];

impl Render for ListResponse {
    fn render(&self, now: Timestamp) -> Document {
        let row = |it: &ContainerRow| {
            let [name, status, image, ports, session] =
                [&it.name, &it.status, &it.image, &it.ports, &it.session].map(|it| StyledText::from(it.as_str()));
            let (services, created) = (it.compose_services.join(", "), ago(&it.created, now));
            vec![name, status, image, ports, services.into(), created.into(), it.engine.to_string().into(), session]
        };
        let document = Document::rows(&COLUMNS, &self.containers, row, "no containers; `coracle create` makes one");
        document.and_lines(unverified(&self.unverified))
    }
}

/// One line for all of them, and where it is explained.
fn unverified(names: &[String]) -> Option<StyledText> {
    let (shown, more) = (joined(names.iter().take(NAMED)), names.len().saturating_sub(NAMED));
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let containers = count(names.len() as u64, "container", "containers");
    let line = format!(" {containers}: {shown}{more}; `coracle list --help` explains");
    (!names.is_empty()).then(|| StyledText::new().doubtful("unverified").plain(line))
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::document::rendered;

    fn response(containers: Vec<ContainerRow>, unverified: Vec<String>) -> ListResponse {
        ListResponse { count: containers.len(), containers, unverified }
    }

    #[test]
    fn containers_are_a_table() {
        let row = |name: &str, status: &str| ContainerRow {
            name: name.into(),
            container_id: None,
            id: None,
            status: status.into(),
            running: true,
            image: "ubuntu:24.04".into(),
            ports: String::new(),
            port_map: Vec::new(),
            purpose: None,
            persistent: false,
            created: "2026-11-21T10:00:00.000Z".into(),
            session: "default".into(),
            workdir: ContainerPath::root(),
            exec_user: None,
            engine: EngineKind::Docker,
            compose_project: None,
            compose_services: vec!["db".into(), "cache".into()],
            jobs_running: 0,
            expires_at: None,
        };
        let listed = response(vec![row("web", "running"), row("db", "exited")], vec!["x".into()]);
        assert_snapshot!(rendered(&listed, "2026-11-21T12:30:00Z"), @r"
        NAME  STATUS   IMAGE         PORTS  SERVICES   CREATED  ENGINE  SESSION
        web   running  ubuntu:24.04         db, cache  2 h ago  docker  default
        db    exited   ubuntu:24.04         db, cache  2 h ago  docker  default
        unverified 1 container: x; `coracle list --help` explains
        ");
        assert_snapshot!(rendered(&response(vec![], vec![]), "2026-11-21T12:30:00Z"), @"no containers; `coracle create` makes one");
    }

    #[test]
    fn unverified_containers_are_one_line() {
        let names: Vec<_> = (1..=5).map(|it| format!("x{it}")).collect();
        let text = rendered(&response(vec![], names), "2026-11-21T12:30:00Z");
        assert_eq!(text.lines().count(), 2);
        assert_snapshot!(text.lines().last().unwrap(), @"unverified 5 containers: x1, x2, x3 and 2 more; `coracle list --help` explains");
    }
}
