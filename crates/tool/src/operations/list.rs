//! `list`: the containers there are.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_context::config::CrossSession;
use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render, StyledText, joined};
use coracle_context::failure::Failure;
use coracle_context::humanize::{ago, count, image_label};
use coracle_lifecycle::{ContainerEntry, Role, Store};
use coracle_runtime::{Protocol, PublishedPort};
use coracle_types::{ContainerPath, EngineKind, Ids, ProjectName, RecordId};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::commands::running;
use crate::dispatch::{Effect, Operation};
use crate::last_seen::LastSeen;
use crate::schema::result_schema;
use crate::shapes::PortShape;

/// List the containers of this session, and those of others that it may see.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct List {}

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub struct ListResponse {
    pub containers: Vec<ContainerRow>,
    pub count: usize,
    pub unverified: Vec<String>,
    /// For people: those that sessions, sandboxes and builds of images have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub others: Vec<OtherRow>,
    /// For people: those of `unverified` that another state directory made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    foreign: Vec<String>,
    /// For people: when this was seen, where the engine is busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub as_of: Option<String>,
}

/// A container that has no name to call it by.
#[derive(Debug, Serialize)]
pub struct OtherRow {
    pub name: String,
    pub kind: &'static str,
    pub status: String,
    pub running: bool,
    pub image: String,
    pub purpose: Option<String>,
    pub created: String,
    pub session: String,
    pub engine: EngineKind,
}

#[derive(Debug, JsonSchema, Serialize)]
pub struct ContainerRow {
    pub name: String,
    container_id: Option<String>,
    pub id: Option<String>,
    pub status: String,
    pub running: bool,
    pub image: String,
    ports: String,
    #[schemars(with = "Vec<PortShape>")]
    port_map: Vec<PublishedPort>,
    pub purpose: Option<String>,
    persistent: bool,
    pub created: String,
    pub session: String,
    #[schemars(with = "String")]
    workdir: ContainerPath,
    #[schemars(with = "Option<String>")]
    exec_user: Option<Ids>,
    #[schemars(with = "String")]
    pub engine: EngineKind,
    #[schemars(with = "Option<String>")]
    compose_project: Option<ProjectName>,
    /// Services of its stack, by name.
    compose_services: Vec<String>,
    pub jobs_running: usize,
    expires_at: Option<String>,
}

impl Operation for List {
    const NAME: &'static str = "list";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<ListResponse>;
    type Response = ListResponse;

    async fn run(self, cx: &Context) -> Result<ListResponse, Failure> {
        let store = cx.store()?;
        let is_of_person = cx.call.frontend.is_of_person();
        let listed = coracle_lifecycle::list_recent(cx.engines(), &store);
        let listing = if is_of_person {
            match tokio::time::timeout(BUSY_AFTER, listed).await {
                Ok(listing) => listing?,
                // A program decides by what it reads, and waits for the engine.
                Err(_) => return as_last_seen(cx, &store),
            }
        } else {
            listed.await?
        };
        if is_of_person {
            LastSeen::from_list(&listing, status).save(&store);
        }
        let jobs = jobs_running(cx, &listing.containers).await;
        let all = cx.cross_session() != CrossSession::None;
        let seen = |it: &ContainerEntry| all || it.record.session == cx.call.session.as_str();
        let shown = |it: ContainerEntry| {
            let running = jobs.get(&it.record.record_id).copied().unwrap_or(0);
            let expires_at = coracle_context::removal::expiry(cx, &it.record);
            let services = it.record.compose_project.as_ref().and_then(|it| listing.services.get(it.as_str()));
            let compose_services = services.cloned().unwrap_or_default();
            ContainerRow { jobs_running: running, expires_at, compose_services, ..row(it) }
        };
        let containers: Vec<_> = listing.containers.into_iter().filter(seen).map(shown).collect();
        let others = listing.others.iter().filter(|_| is_of_person).map(OtherRow::from_entry).collect();
        let foreign = if is_of_person { listing.foreign } else { Vec::new() };
        let count = containers.len();
        Ok(ListResponse { count, containers, unverified: listing.unverified, others, foreign, as_of: None })
    }
}

/// An engine that takes longer is busy, such as Podman while it builds an image.
const BUSY_AFTER: Duration = Duration::from_secs(5);

/// The records, each with what was last seen of its container.
fn as_last_seen(cx: &Context, store: &Store) -> Result<ListResponse, Failure> {
    let seen = LastSeen::load(store);
    let (mut containers, mut others) = (Vec::new(), Vec::new());
    let mut records = store.records().map_err(coracle_lifecycle::Error::from)?;
    records.sort_by_key(|it| it.created);
    for record in records {
        let last = seen.container(&record.record_id);
        let is_primary = matches!(record.role, Role::Primary | Role::Adopted);
        let entry = ContainerEntry { record, container: None };
        if is_primary {
            let expires_at = coracle_context::removal::expiry(cx, &entry.record);
            let ports = last.ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let row = ContainerRow { expires_at, ports, port_map: last.ports, ..row(entry) };
            containers.push(ContainerRow { status: last.status, running: last.running, ..row });
        } else {
            let row = OtherRow::from_entry(&entry);
            others.push(OtherRow { status: last.status, running: last.running, ..row });
        }
    }
    let (unverified, foreign) = (Vec::new(), Vec::new());
    let as_of = Some(seen.at.map_or_else(|| "unknown".to_owned(), |at| at.to_string()));
    Ok(ListResponse { count: containers.len(), containers, unverified, others, foreign, as_of })
}

impl OtherRow {
    fn from_entry(entry: &ContainerEntry) -> Self {
        let (record, container) = (&entry.record, entry.container.as_deref());
        Self {
            name: record.name.to_string(),
            kind: match record.role {
                Role::Build => "image build",
                Role::Sandbox => "sandbox",
                _ => "session",
            },
            status: status(container),
            running: container.is_some_and(coracle_runtime::Container::running),
            image: record.image.clone(),
            purpose: record.purpose.clone(),
            created: record.created.to_string(),
            session: record.session.clone(),
            engine: record.engine,
        }
    }
}

/// Background jobs by container, of all that answer at once. Each that was started is in its record, so most guests need
/// not be reached.
async fn jobs_running(cx: &Context, listed: &[ContainerEntry]) -> BTreeMap<RecordId, usize> {
    let mut tasks = JoinSet::new();
    let running_with_jobs =
        |it: &&ContainerEntry| !it.record.jobs.is_empty() && it.container.as_ref().is_some_and(|it| it.running());
    for it in listed.iter().filter(running_with_jobs) {
        let (cx, record) = (cx.clone(), it.record.clone());
        tasks.spawn(async move { (record.record_id.clone(), running(&cx, &record).await) });
    }
    tasks.join_all().await.into_iter().collect()
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

const COLUMNS: [Column; 9] = [
    Column::fixed("NAME"),
    Column::fixed("STATUS"),
    Column::flexible("IMAGE"),
    Column::fixed("PORTS").or_left_out(1),
    Column::fixed("KIND").or_left_out(2),
    Column::flexible("SERVICES").or_left_out(3),
    Column::fixed("CREATED").or_left_out(4),
    Column::fixed("ENGINE").or_left_out(5),
    Column::flexible("SESSION").or_left_out(6),
];

impl Render for ListResponse {
    fn render(&self, now: Timestamp) -> Document {
        // Where all are of one kind it need not be named.
        let kind = if self.others.is_empty() { "" } else { "container" };
        let containers = self.containers.iter().map(|it| {
            let ports = it.port_map.iter().map(short_port).collect::<Vec<_>>().join(" ");
            let image = image_label(&it.image, it.purpose.as_deref());
            let (services, created, engine) =
                (it.compose_services.join(", "), ago(&it.created, now), it.engine.to_string());
            let cells = [it.name.clone(), it.status.clone(), image, ports, kind.to_owned(), services, created, engine];
            cells.into_iter().chain([it.session.clone()]).map(StyledText::from).collect::<Vec<_>>()
        });
        let others = self.others.iter().map(|it| {
            let image = image_label(&it.image, it.purpose.as_deref());
            let (created, engine) = (ago(&it.created, now), it.engine.to_string());
            let (name, status, kind, none) = (it.name.clone(), it.status.clone(), it.kind.to_owned(), String::new);
            let cells = [name, status, image, none(), kind, none(), created, engine, it.session.clone()];
            cells.map(StyledText::from).to_vec()
        });
        let rows: Vec<Vec<StyledText>> = containers.chain(others).collect();
        let document = if rows.is_empty() {
            Document::line("no containers; `coracle create` makes one")
        } else {
            Document::table(&COLUMNS, rows)
        };
        let unproven: Vec<String> =
            self.unverified.iter().filter(|name| !self.foreign.contains(name)).cloned().collect();
        let lines = [
            self.as_of.as_ref().map(|at| last_seen_line(at, now)),
            named("of another state directory", &self.foreign),
            named("unverified", &unproven),
        ];
        document.and_lines(lines.into_iter().flatten())
    }
}

/// A port without the loopback address, at which every one is published.
fn short_port(port: &PublishedPort) -> String {
    let address = if port.address.is_loopback() { String::new() } else { format!("{}:", port.address) };
    let protocol = if port.protocol == Protocol::Udp { "/udp" } else { "" };
    format!("{address}{}->{}{protocol}", port.host, port.container)
}

fn last_seen_line(at: &str, now: Timestamp) -> StyledText {
    let seen = if at == "unknown" { "not known".to_owned() } else { format!("those of {}", ago(at, now)) };
    StyledText::new().doubtful("the engine is busy").plain(format!(": states are {seen}"))
}

/// One line for all of them, and where it is explained.
fn named(what: &str, names: &[String]) -> Option<StyledText> {
    let (shown, more) = (joined(names.iter().take(NAMED)), names.len().saturating_sub(NAMED));
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let containers = count(names.len() as u64, "container", "containers");
    let line = format!(" {containers}: {shown}{more}; `coracle list --help` explains");
    (!names.is_empty()).then(|| StyledText::new().doubtful(what).plain(line))
}

#[cfg(test)]
mod tests {
    use coracle_context::context::Frontend;
    use coracle_context::document::rendered;
    use coracle_runtime::FakeRuntime;
    use coracle_runtime::fake::Verb;
    use insta::assert_snapshot;

    use super::*;

    fn response(containers: Vec<ContainerRow>, unverified: Vec<String>) -> ListResponse {
        let (others, foreign, as_of) = (Vec::new(), Vec::new(), None);
        ListResponse { count: containers.len(), containers, unverified, others, foreign, as_of }
    }

    #[tokio::test]
    async fn a_person_sees_the_last_known_state_while_the_engine_is_busy() {
        let (dir, fake) = (tempfile::tempdir().unwrap(), FakeRuntime::new());
        let mut cx = Context::for_tests(dir.path()).with_fake(fake.clone());
        crate::operations::destroy::tests::adopted(&cx, &fake).await;
        cx.call.frontend = Frontend::Cli;
        let seen = List {}.run(&cx).await.unwrap();
        assert_eq!((seen.containers[0].status.as_str(), &seen.as_of), ("running", &None));
        fake.slow(Verb::List, Duration::from_secs(20));
        fake.slow(Verb::Inspect, Duration::from_secs(20));
        tokio::time::pause();
        let seen = List {}.run(&cx).await.unwrap();
        assert_eq!((seen.containers[0].status.as_str(), seen.as_of.is_some()), ("running", true));
        let shown = rendered(&seen, &Timestamp::now().to_string());
        assert!(shown.ends_with("the engine is busy: states are those of just now"), "{shown}");
        std::fs::remove_file(cx.store().unwrap().root().join("last-seen.json")).unwrap();
        let seen = List {}.run(&cx).await.unwrap();
        assert_eq!(seen.containers[0].status, "unknown");
        // A program decides by the answer.
        cx.call.frontend = Frontend::Call;
        assert!(List {}.run(&cx).await.unwrap().as_of.is_none());
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
        NAME  STATUS   IMAGE         PORTS  KIND  SERVICES   CREATED  ENGINE  SESSION
        web   running  ubuntu 24.04               db, cache  2 h ago  docker  default
        db    exited   ubuntu 24.04               db, cache  2 h ago  docker  default
        unverified 1 container: x; `coracle list --help` explains
        ");
        assert_snapshot!(rendered(&response(vec![], vec![]), "2026-11-21T12:30:00Z"), @"no containers; `coracle create` makes one");
    }

    #[test]
    fn containers_of_another_state_directory_are_no_attack() {
        let listed = ListResponse { foreign: vec!["x".into()], ..response(vec![], vec!["x".into(), "y".into()]) };
        assert_snapshot!(rendered(&listed, "2026-11-21T12:30:00Z"), @r"
        no containers; `coracle create` makes one
        of another state directory 1 container: x; `coracle list --help` explains
        unverified 1 container: y; `coracle list --help` explains
        ");
    }

    #[test]
    fn unverified_containers_are_one_line() {
        let names: Vec<_> = (1..=5).map(|it| format!("x{it}")).collect();
        let text = rendered(&response(vec![], names), "2026-11-21T12:30:00Z");
        assert_eq!(text.lines().count(), 2);
        assert_snapshot!(text.lines().last().unwrap(), @"unverified 5 containers: x1, x2, x3 and 2 more; `coracle list --help` explains");
    }
}
