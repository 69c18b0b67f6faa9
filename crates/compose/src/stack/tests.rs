use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coracle_runtime::{Container, Health, Limits, MockRuntime, MountPoint, Network};
use coracle_types::{ContainerId, ContainerStatus, Error, Excerpt, ImageId, ProjectName, Result};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{Claim, StackError, UpOptions, claim, services, up};
use crate::AdmittedStack;
use crate::fixtures::Person;

/// The state of a container at a moment.
type At = (ContainerStatus, Option<Health>, Option<i64>);

/// A stack that changes its state by the clock. These tests only concern the verdict; tests on engines cover the rest.
#[derive(Clone, Debug)]
struct Script {
    begun: Instant,
    /// For each service, its states by their start in seconds.
    states: BTreeMap<&'static str, Vec<(u64, At)>>,
    /// How long Compose takes, and whether it then fails.
    compose: (u64, Option<&'static str>),
    /// The error of Compose at its end.
    error: Option<&'static str>,
    checked: Arc<Mutex<Vec<u64>>>,
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
            checked: Arc::default(),
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

impl Script {
    /// An engine with this stack. Any other call panics.
    fn engine(&self) -> MockRuntime {
        // Leaked, so that all expectations can refer to it.
        let script: &'static Self = Box::leak(Box::new(self.clone()));
        let mut engine = MockRuntime::new();
        engine.expect_stack_up().returning(move |_| Box::pin(script.compose()));
        engine.expect_list().returning(move |_| Ok(script.containers()));
        engine.expect_inspect().returning(move |handle| {
            let gone = || Error::NoSuchContainer(handle.to_string());
            let service = script.states.keys().find(|it| hex(it) == handle.as_str()).ok_or_else(gone)?;
            Ok(script.container(service, script.now(service).ok_or_else(gone)?, BTreeMap::new()))
        });
        engine.expect_logs().returning(move |id, max| {
            let log = format!("{}\x1b[31mend of the log of {}", "x".repeat(5000), &id.as_str()[..4]);
            Ok(log.into_bytes()[5000 - max..].to_vec())
        });
        engine.expect_check_health().returning(move |_| {
            script.checked.lock().unwrap().push(script.begun.elapsed().as_secs());
            Ok(None)
        });
        engine
            .expect_list_networks()
            .returning(move |_| Ok(script.networks.iter().map(|it| network(it.0, it.1)).collect()));
        engine.expect_list_volumes().returning(|_| Ok(Vec::new()));
        engine.expect_find_images().returning(|_| Ok(Vec::new()));
        engine
    }

    async fn compose(&self) -> Result<Option<Excerpt>> {
        sleep(Duration::from_secs(self.compose.0)).await;
        let excerpt = |it: &str| Excerpt::from_bytes(it.as_bytes());
        match self.compose.1 {
            Some(failure) => Err(Error::Engine { verb: "compose up", exit: 1, excerpt: excerpt(failure) }),
            None => Ok(self.error.map(excerpt)),
        }
    }

    fn containers(&self) -> Vec<Container> {
        let of = |service: &str| BTreeMap::from([(super::SERVICE.to_owned(), service.to_owned())]);
        let named = self.states.keys().filter_map(|it| Some(self.container(it, self.now(it)?, of(it))));
        let labelled = self.labels.iter().map(|labels| self.container("x", RUNS, labels.clone()));
        named.chain(labelled).collect()
    }
}

fn network(name: &str, project: Option<&str>) -> Network {
    Network {
        id: name.to_owned(),
        name: name.to_owned(),
        labels: project.iter().map(|it| (super::PROJECT.to_owned(), (*it).to_owned())).collect(),
        internal: false,
        gateways: Vec::new(),
        subnets: Vec::new(),
    }
}

fn hex(service: &str) -> String {
    let digits: String = service.bytes().map(|it| format!("{it:02x}")).collect();
    format!("{digits:0<64}")
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
    let script = Script::new(&[("db", &[(0, STARTING), (20, HEALTHY)]), ("web", &[(0, RUNS), (5, ended(0))])]);
    let seen = up(&script.engine(), &two(), &how(false)).await.unwrap();
    assert_eq!(script.begun.elapsed().as_secs(), 20);
    let found: Vec<_> = seen.iter().map(|it| (it.service.as_str(), it.state, it.exit_code)).collect();
    assert_eq!(found, [("db", ContainerStatus::Running, None), ("web", ContainerStatus::Exited, Some(0))]);
    assert_eq!((seen[0].name.as_str(), seen[0].container_id.len()), ("p-db-1", 12));
    assert!(script.checked.lock().unwrap().is_empty(), "this engine runs its checks by itself");
}

#[tokio::test(start_paused = true)]
async fn missing_health_is_waited_for_if_the_file_has_a_check() {
    let checked = |check: Value| stack(json!({ "db": { "image": "x", "healthcheck": check } }));
    let script = || Script::new(&[("db", &[(0, RUNS), (3, STARTING), (20, HEALTHY)])]);
    for test in [json!(["CMD", "ready"]), json!(["CMD-SHELL", "ready"])] {
        let script = script();
        up(&script.engine(), &checked(json!({ "test": test })), &how(false)).await.unwrap();
        assert_eq!(script.begun.elapsed().as_secs(), 20, "{test}");
    }
    for none in [json!({ "test": ["NONE"] }), json!({ "test": ["CMD", "ready"], "disable": true })] {
        let script = script();
        up(&script.engine(), &checked(none.clone()), &how(false)).await.unwrap();
        assert!(script.begun.elapsed().as_secs() < 3, "{none}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_service_ends_the_wait_and_its_log_is_reported() {
    let script = Script::new(&[("db", &[(0, STARTING)]), ("web", &[(0, RUNS), (5, ended(3))])]);
    let err = up(&script.engine(), &two(), &how(false)).await.unwrap_err();
    assert_eq!(script.begun.elapsed().as_secs(), 5);
    assert_eq!(err.to_string(), "the stack did not come up: `web` ended with 3");
    let StackError::Bad { bad, cause: None } = err else { panic!("{err:?}") };
    assert_eq!((bad[0].service.as_str(), bad[0].exit_code), ("web", Some(3)));
    assert!(bad[0].log.len() < 2100 && bad[0].log.ends_with("\\u{1b}[31mend of the log of 7765"), "{}", bad[0].log);
}

#[tokio::test(start_paused = true)]
async fn the_wait_ends_for_services_that_stay_unhealthy_or_do_not_start() {
    let script =
        Script::new(&[("db", &[(0, STARTING), (30, (ContainerStatus::Running, Some(Health::Unhealthy), None))])]);
    let err = up(&script.engine(), &two(), &how(false)).await.unwrap_err();
    assert_eq!(script.begun.elapsed().as_secs(), 60);
    assert_eq!(err.to_string(), "the stack did not come up: `db` is unhealthy, `web` was not started");
}

#[tokio::test(start_paused = true)]
async fn without_a_failed_service_the_error_is_that_of_compose() {
    let mut script = Script::new(&[("db", &[(0, HEALTHY)])]);
    script.compose = (2, Some("no space left"));
    let err = up(&script.engine(), &two(), &how(false)).await.unwrap_err();
    assert!(matches!(&err, StackError::Engine(Error::Engine { .. })), "{err:?}");
    script.states.insert("web", vec![(0, ended(1))]);
    let err = up(&script.engine(), &two(), &how(false)).await.unwrap_err();
    assert!(matches!(&err, StackError::Bad { bad, cause: Some(_) } if bad.len() == 1), "{err:?}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_compose_failed_to_start_is_not_waited_for() {
    let mut script = Script::new(&[("db", &[(0, RUNS)]), ("web", &[(0, (ContainerStatus::Created, None, None))])]);
    script.error = Some("port is already allocated");
    let err = up(&script.engine(), &two(), &how(false)).await.unwrap_err();
    assert!(script.begun.elapsed().as_secs() < 3);
    assert!(err.to_string().contains("port is already allocated"), "{err}");
    // Compose reports a service that ended with 0 as a failure, and Coracle does not.
    let mut script = Script::new(&[("db", &[(0, RUNS)]), ("web", &[(0, ended(0))])]);
    script.error = Some("container web exited (0)");
    assert!(up(&script.engine(), &two(), &how(false)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn checks_that_the_engine_does_not_run_are_run_at_their_interval_while_compose_waits() {
    let mut script = Script::new(&[("db", &[(0, STARTING), (35, HEALTHY)]), ("web", &[(0, RUNS)])]);
    script.compose = (36, None);
    up(&script.engine(), &two(), &how(true)).await.unwrap();
    assert_eq!(*script.checked.lock().unwrap(), [10, 20, 30]);
    // Compose would wait for a service that depends on one that has ended.
    let mut script = Script::new(&[("db", &[(0, STARTING), (4, ended(1))])]);
    script.compose = (600, None);
    let err = up(&script.engine(), &two(), &how(true)).await.unwrap_err();
    assert_eq!(err.to_string(), "the stack did not come up: `db` ended with 1");
    assert!(script.begun.elapsed().as_secs() < 6);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_was_replaced_while_it_was_bound_is_noticed() {
    let person = Person::new();
    let bind = json!({ "type": "bind", "source": person.work(), "target": "/w", "read_only": true });
    let stack = person.admit(&json!({ "services": { "db": { "image": "x", "volumes": [bind] } } })).unwrap();
    let mut script = Script::new(&[("db", &[(0, RUNS)])]);
    script.source = person.work();
    assert!(up(&script.engine(), &stack, &how(false)).await.is_ok());
    script.source = "/".into();
    let err = up(&script.engine(), &stack, &how(false)).await.unwrap_err();
    assert!(matches!(&err, StackError::Engine(Error::MountChanged { .. })), "{err:?}");
}

#[tokio::test]
async fn a_project_is_ours_only_if_everything_with_its_name_is() {
    let mut script = Script::new(&[]);
    let (ours, theirs) = (BTreeMap::from([("sig".to_owned(), "x".to_owned())]), BTreeMap::new());
    let project = ProjectName::parse("p").unwrap();
    let held = async |script: &Script| claim(&script.engine(), &project, |it| it.contains_key("sig")).await.unwrap();
    assert_eq!(held(&script).await, Claim::Free);
    script.labels = vec![ours.clone()];
    assert_eq!(held(&script).await, Claim::Ours);
    script.labels.push(theirs);
    assert_eq!(held(&script).await, Claim::Foreign);
    script.labels = vec![ours];
    for (network, claim) in [
        (("p_default", None), Claim::Foreign),
        (("other", Some("p")), Claim::Foreign),
        (("p_default", Some("p_x")), Claim::Ours),
        (("pp_default", None), Claim::Ours),
    ] {
        script.networks = vec![network];
        assert_eq!(held(&script).await, claim, "{network:?}");
    }
}

#[tokio::test]
async fn services_that_disappeared_meanwhile_are_left_out() {
    let script = Script::new(&[("db", &[(0, RUNS)]), ("later", &[(600, RUNS)])]);
    let seen = services(&script.engine(), &ProjectName::parse("p").unwrap()).await.unwrap();
    assert_eq!(seen.iter().map(|it| it.service.as_str()).collect::<Vec<_>>(), ["db"]);
}
