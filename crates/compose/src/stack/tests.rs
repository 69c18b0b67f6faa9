use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_runtime::stack_model::StackModel;
use coracle_runtime::{
    Container, ContainerRuntime, ContainerUsage, Endpoint, EngineInfo, Health, Image, ImageBuild, ImageCommit,
    ImageImport, ImageStore, LabelFilter, Limits, MountPoint, Network, NetworkCreate, Networks, Placed, RemovalOutcome,
    StackUp, Stacks, Volume, VolumeCreate, Volumes,
};
use coracle_types::{
    ContainerId, ContainerPath, ContainerStatus, EngineKind, Error, Excerpt, Exec, ExecOutput, Handle, ImageId,
    ImageRef, NetworkName, ProjectName, Result,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Claim, StackError, UpOptions, claim, services, up};
use crate::AdmittedStack;
use crate::fixtures::Person;

const NOT_USED: &str = "these tests do not use it";

/// The state of a container at a moment.
type At = (ContainerStatus, Option<Health>, Option<i64>);

/// An engine whose stack changes its state by the clock. It replaces no engine: these tests only concern the verdict,
/// and tests on engines cover the rest.
#[derive(Debug)]
struct Script {
    begun: Instant,
    /// For each service, its states by their start in seconds.
    states: BTreeMap<&'static str, Vec<(u64, At)>>,
    /// How long Compose takes, and whether it then fails.
    compose: (u64, Option<&'static str>),
    /// The error of Compose at its end.
    error: Option<&'static str>,
    checked: Mutex<Vec<u64>>,
    labels: Vec<BTreeMap<String, String>>,
    networks: Vec<(&'static str, Option<&'static str>)>,
    source: std::path::PathBuf,
}

impl Script {
    fn new(states: &[(&'static str, &[(u64, At)])]) -> Self {
        Self {
            begun: Instant::now(),
            states: states.iter().map(|(name, at)| (*name, at.to_vec())).collect(),
            compose: (1, None),
            error: None,
            checked: Mutex::default(),
            labels: Vec::new(),
            networks: Vec::new(),
            source: "/".into(),
        }
    }

    fn id(service: &str) -> ContainerId {
        ContainerId::parse(hex(service)).unwrap()
    }

    fn now(&self, service: &str) -> Option<At> {
        let seconds = self.begun.elapsed().as_secs();
        self.states.get(service)?.iter().rev().find(|(from, _)| *from <= seconds).map(|(_, at)| *at)
    }

    fn container(&self, service: &str, at: At, labels: BTreeMap<String, String>) -> Container {
        Container {
            id: Self::id(service),
            name: format!("p-{service}-1"),
            image: ImageId::parse(format!("sha256:{}", "a".repeat(64))).unwrap(),
            status: at.0,
            pid: None,
            exit_code: at.2,
            oom_killed: false,
            created: String::new(),
            started_at: None,
            labels,
            user: String::new(),
            workdir: String::new(),
            env: Vec::new(),
            ports: Vec::new(),
            mounts: vec![MountPoint {
                source: self.source.clone(),
                target: "/w".into(),
                writable: false,
                is_bind: true,
            }],
            networks: Vec::new(),
            limits: Limits::default(),
            execs: 0,
            health: at.1,
            lifetime_over: None,
            isolation: None,
        }
    }
}

fn hex(service: &str) -> String {
    let digits: String = service.bytes().map(|it| format!("{it:02x}")).collect();
    format!("{digits:0<64}")
}

#[async_trait]
impl Stacks for Script {
    async fn compose_version(&self) -> Option<String> {
        unreachable!("{NOT_USED}")
    }

    async fn check_stack(&self, _: &StackModel) -> Result<()> {
        unreachable!("{NOT_USED}")
    }

    async fn stack_up(&self, _: &StackUp) -> Result<Option<Excerpt>> {
        sleep(Duration::from_secs(self.compose.0)).await;
        let failed =
            |it: &str| Error::Engine { verb: "compose up", exit: 1, excerpt: Excerpt::from_bytes(it.as_bytes()) };
        self.compose.1.map_or(Ok(self.error.map(|it| Excerpt::from_bytes(it.as_bytes()))), |it| Err(failed(it)))
    }

    async fn stack_down(&self, _: &ProjectName) -> Result<()> {
        unreachable!("{NOT_USED}")
    }

    async fn logs(&self, id: &ContainerId, max: usize) -> Result<Vec<u8>> {
        let log = format!("{}\x1b[31mend of the log of {}", "x".repeat(5000), &id.as_str()[..4]);
        Ok(log.into_bytes()[5000 - max..].to_vec())
    }

    async fn check_health(&self, _: &ContainerId) -> Result<Option<Health>> {
        self.checked.lock().unwrap().push(self.begun.elapsed().as_secs());
        Ok(None)
    }
}

#[async_trait]
impl ContainerRuntime for Script {
    fn kind(&self) -> EngineKind {
        EngineKind::Fake
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { address: "local".into(), rootless: false, single_user: false }
    }

    async fn info(&self) -> Result<EngineInfo> {
        unreachable!("{NOT_USED}")
    }

    async fn create(&self, _: &Placed) -> Result<ContainerId> {
        unreachable!("{NOT_USED}")
    }

    async fn start(&self, _: &ContainerId) -> Result<()> {
        unreachable!("{NOT_USED}")
    }

    async fn stop(&self, _: &ContainerId, _: Duration) -> Result<()> {
        unreachable!("{NOT_USED}")
    }

    async fn inspect(&self, handle: &Handle) -> Result<Container> {
        let service = self.states.keys().find(|it| hex(it) == handle.as_str()).copied();
        let gone = || Error::NoSuchContainer(handle.to_string());
        let service = service.ok_or_else(gone)?;
        Ok(self.container(service, self.now(service).ok_or_else(gone)?, BTreeMap::new()))
    }

    async fn list(&self, _: &LabelFilter) -> Result<Vec<Container>> {
        let of = |service: &str| BTreeMap::from([(super::SERVICE.to_owned(), service.to_owned())]);
        let named = self.states.keys().filter_map(|it| Some(self.container(it, self.now(it)?, of(it))));
        let labelled =
            self.labels.iter().map(|it| self.container("x", (ContainerStatus::Running, None, None), it.clone()));
        Ok(named.chain(labelled).collect())
    }

    async fn usage(&self, _: &ContainerId) -> Result<Option<ContainerUsage>> {
        unreachable!("{NOT_USED}")
    }

    async fn remove(&self, _: &ContainerId) -> Result<RemovalOutcome> {
        unreachable!("{NOT_USED}")
    }

    async fn exec(&self, _: &ContainerId, _: Exec) -> Result<ExecOutput> {
        unreachable!("{NOT_USED}")
    }

    async fn link(&self, _: &ContainerId, _: Option<SocketAt>, _: LinkSettings) -> Result<Link> {
        unreachable!("{NOT_USED}")
    }

    async fn upload(&self, _: &ContainerId, _: &ContainerPath, _: File) -> Result<()> {
        unreachable!("{NOT_USED}")
    }

    async fn download(&self, _: &ContainerId, _: &ContainerPath, _: File, _: u64) -> Result<()> {
        unreachable!("{NOT_USED}")
    }
}

#[async_trait]
impl ImageStore for Script {
    async fn find_images(&self, _: &[ImageRef]) -> Result<Vec<Image>> {
        Ok(Vec::new())
    }

    async fn list_images(&self, _: &LabelFilter) -> Result<Vec<Image>> {
        unreachable!("{NOT_USED}")
    }

    async fn pull_image(&self, _: &ImageRef, _: Duration) -> Result<Image> {
        unreachable!("{NOT_USED}")
    }

    async fn import_image(&self, _: ImageImport) -> Result<Image> {
        unreachable!("{NOT_USED}")
    }

    async fn commit_image(&self, _: &ImageCommit) -> Result<Image> {
        unreachable!("{NOT_USED}")
    }

    async fn build_image(&self, _: &ImageBuild) -> Result<Image> {
        unreachable!("{NOT_USED}")
    }

    async fn save_image(&self, _: &ImageId, _: File) -> Result<()> {
        unreachable!("{NOT_USED}")
    }

    async fn load_image(&self, _: File, _: &ImageRef) -> Result<Image> {
        unreachable!("{NOT_USED}")
    }

    async fn tag_image(&self, _: &ImageId, _: &ImageRef) -> Result<()> {
        unreachable!("{NOT_USED}")
    }

    async fn remove_image(&self, _: &ImageId) -> Result<()> {
        unreachable!("{NOT_USED}")
    }

    async fn untag_image(&self, _: &ImageRef) -> Result<()> {
        unreachable!("{NOT_USED}")
    }
}

#[async_trait]
impl Networks for Script {
    async fn find_network(&self, _: &NetworkName) -> Result<Option<Network>> {
        unreachable!("{NOT_USED}")
    }

    async fn list_networks(&self, _: &LabelFilter) -> Result<Vec<Network>> {
        let labels = |it: Option<&str>| it.map(|it| (super::PROJECT.to_owned(), it.to_owned())).into_iter().collect();
        let network = |(name, project): &(&str, Option<&str>)| Network {
            id: (*name).to_owned(),
            name: (*name).to_owned(),
            labels: labels(*project),
            internal: false,
            gateways: Vec::new(),
            subnets: Vec::new(),
        };
        Ok(self.networks.iter().map(network).collect())
    }

    async fn create_network(&self, _: &NetworkCreate) -> Result<Network> {
        unreachable!("{NOT_USED}")
    }

    async fn remove_network(&self, _: &str) -> Result<()> {
        unreachable!("{NOT_USED}")
    }
}

#[async_trait]
impl Volumes for Script {
    async fn list_volumes(&self, _: &LabelFilter) -> Result<Vec<Volume>> {
        Ok(Vec::new())
    }

    async fn create_volume(&self, _: &VolumeCreate) -> Result<Volume> {
        unreachable!("{NOT_USED}")
    }

    async fn remove_volume(&self, _: &str) -> Result<()> {
        unreachable!("{NOT_USED}")
    }
}

fn stack(services: Value) -> AdmittedStack {
    let file = Value::Object([("services".to_owned(), services)].into_iter().collect());
    Person::new().admit(&file).unwrap()
}

fn two() -> AdmittedStack {
    stack(json!({ "db": { "image": "x", "healthcheck": { "interval": "10s" } }, "web": { "image": "x" } }))
}

const RUNS: At = (ContainerStatus::Running, None, None);
const STARTING: At = (ContainerStatus::Running, Some(Health::Starting), None);
const HEALTHY: At = (ContainerStatus::Running, Some(Health::Healthy), None);

fn ended(code: i64) -> At {
    (ContainerStatus::Exited, None, Some(code))
}

fn how(checks_on_demand: bool) -> UpOptions {
    UpOptions { dir: "/".into(), patience: Duration::from_secs(60), checks_on_demand }
}

#[tokio::test(start_paused = true)]
async fn a_stack_is_ready_when_all_are_healthy_running_or_ended_with_0() {
    let engine = Script::new(&[("db", &[(0, STARTING), (20, HEALTHY)]), ("web", &[(0, RUNS), (5, ended(0))])]);
    let seen = up(&engine, &two(), &how(false)).await.unwrap();
    assert_eq!(engine.begun.elapsed().as_secs(), 20);
    let found: Vec<_> = seen.iter().map(|it| (it.service.as_str(), it.state, it.exit_code)).collect();
    assert_eq!(found, [("db", ContainerStatus::Running, None), ("web", ContainerStatus::Exited, Some(0))]);
    assert_eq!((seen[0].name.as_str(), seen[0].container_id.len()), ("p-db-1", 12));
    assert!(engine.checked.lock().unwrap().is_empty(), "this engine runs its checks by itself");
}

#[tokio::test(start_paused = true)]
async fn missing_health_is_waited_for_if_the_file_has_a_check() {
    let checked = |check: Value| stack(json!({ "db": { "image": "x", "healthcheck": check } }));
    let engine = || Script::new(&[("db", &[(0, RUNS), (3, STARTING), (20, HEALTHY)])]);
    for test in [json!(["CMD", "ready"]), json!(["CMD-SHELL", "ready"])] {
        let engine = engine();
        up(&engine, &checked(json!({ "test": test })), &how(false)).await.unwrap();
        assert_eq!(engine.begun.elapsed().as_secs(), 20, "{test}");
    }
    for none in [json!({ "test": ["NONE"] }), json!({ "test": ["CMD", "ready"], "disable": true })] {
        let engine = engine();
        up(&engine, &checked(none.clone()), &how(false)).await.unwrap();
        assert!(engine.begun.elapsed().as_secs() < 3, "{none}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_service_ends_the_wait_and_its_log_is_reported() {
    let engine = Script::new(&[("db", &[(0, STARTING)]), ("web", &[(0, RUNS), (5, ended(3))])]);
    let err = up(&engine, &two(), &how(false)).await.unwrap_err();
    assert_eq!(engine.begun.elapsed().as_secs(), 5);
    assert_eq!(err.to_string(), "the stack did not come up: `web` ended with 3");
    let StackError::Bad { bad, cause: None } = err else { panic!("{err:?}") };
    assert_eq!((bad[0].service.as_str(), bad[0].exit_code), ("web", Some(3)));
    assert!(bad[0].log.len() < 2100 && bad[0].log.ends_with("\\u{1b}[31mend of the log of 7765"), "{}", bad[0].log);
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_for_services_that_stay_unhealthy_or_do_not_start() {
    let engine =
        Script::new(&[("db", &[(0, STARTING), (30, (ContainerStatus::Running, Some(Health::Unhealthy), None))])]);
    let err = up(&engine, &two(), &how(false)).await.unwrap_err();
    assert_eq!(engine.begun.elapsed().as_secs(), 60);
    assert_eq!(err.to_string(), "the stack did not come up: `db` is unhealthy, `web` was not started");
}

#[tokio::test(start_paused = true)]
async fn without_a_failed_service_the_error_is_that_of_compose() {
    let mut engine = Script::new(&[("db", &[(0, HEALTHY)])]);
    engine.compose = (2, Some("no space left"));
    let err = up(&engine, &two(), &how(false)).await.unwrap_err();
    assert!(matches!(&err, StackError::Engine(Error::Engine { .. })), "{err:?}");
    engine.states.insert("web", vec![(0, ended(1))]);
    let err = up(&engine, &two(), &how(false)).await.unwrap_err();
    assert!(matches!(&err, StackError::Bad { bad, cause: Some(_) } if bad.len() == 1), "{err:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_compose_failed_to_start_is_not_waited_for() {
    let mut engine = Script::new(&[("db", &[(0, RUNS)]), ("web", &[(0, (ContainerStatus::Created, None, None))])]);
    engine.error = Some("port is already allocated");
    let err = up(&engine, &two(), &how(false)).await.unwrap_err();
    assert!(engine.begun.elapsed().as_secs() < 3);
    assert!(err.to_string().contains("port is already allocated"), "{err}");
    // Compose reports a service that ended with 0 as a failure, and Coracle does not.
    let mut engine = Script::new(&[("db", &[(0, RUNS)]), ("web", &[(0, ended(0))])]);
    engine.error = Some("container web exited (0)");
    assert!(up(&engine, &two(), &how(false)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn checks_that_the_engine_does_not_run_are_run_at_their_interval_while_compose_waits() {
    let mut engine = Script::new(&[("db", &[(0, STARTING), (35, HEALTHY)]), ("web", &[(0, RUNS)])]);
    engine.compose = (36, None);
    up(&engine, &two(), &how(true)).await.unwrap();
    assert_eq!(*engine.checked.lock().unwrap(), [10, 20, 30]);
    // Compose would wait for a service that depends on one that has ended.
    let mut engine = Script::new(&[("db", &[(0, STARTING), (4, ended(1))])]);
    engine.compose = (600, None);
    let err = up(&engine, &two(), &how(true)).await.unwrap_err();
    assert_eq!(err.to_string(), "the stack did not come up: `db` ended with 1");
    assert!(engine.begun.elapsed().as_secs() < 6);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_was_replaced_while_it_was_bound_is_noticed() {
    let person = Person::new();
    let bind = json!({ "type": "bind", "source": person.work(), "target": "/w", "read_only": true });
    let stack = person.admit(&json!({ "services": { "db": { "image": "x", "volumes": [bind] } } })).unwrap();
    let mut engine = Script::new(&[("db", &[(0, RUNS)])]);
    engine.source = person.work();
    assert!(up(&engine, &stack, &how(false)).await.is_ok());
    engine.source = "/".into();
    let err = up(&engine, &stack, &how(false)).await.unwrap_err();
    assert!(matches!(&err, StackError::Engine(Error::MountChanged { .. })), "{err:?}");
}

#[tokio::test]
async fn a_project_is_ours_only_if_everything_with_its_name_is() {
    let mut engine = Script::new(&[]);
    let (ours, theirs) = (BTreeMap::from([("sig".to_owned(), "x".to_owned())]), BTreeMap::new());
    let project = ProjectName::parse("p").unwrap();
    let held = async |engine: &Script| claim(engine, &project, |it| it.contains_key("sig")).await.unwrap();
    assert_eq!(held(&engine).await, Claim::Free);
    engine.labels = vec![ours.clone()];
    assert_eq!(held(&engine).await, Claim::Ours);
    engine.labels.push(theirs);
    assert_eq!(held(&engine).await, Claim::Foreign);
    engine.labels = vec![ours];
    for (network, claim) in [
        (("p_default", None), Claim::Foreign),
        (("other", Some("p")), Claim::Foreign),
        (("p_default", Some("p_x")), Claim::Ours),
        (("pp_default", None), Claim::Ours),
    ] {
        engine.networks = vec![network];
        assert_eq!(held(&engine).await, claim, "{network:?}");
    }
}

#[tokio::test]
async fn services_that_disappeared_meanwhile_are_left_out() {
    let engine = Script::new(&[("db", &[(0, RUNS)]), ("later", &[(600, RUNS)])]);
    let seen = services(&engine, &ProjectName::parse("p").unwrap()).await.unwrap();
    assert_eq!(seen.iter().map(|it| it.service.as_str()).collect::<Vec<_>>(), ["db"]);
}
