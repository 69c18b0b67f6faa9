//! Stacks by Compose: what every engine makes of them.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_runtime::{
    Container, ContainerId, ContainerStatus, Error, Health, LabelFilter, ProjectName, StackSource, StackUp,
};
use serde_json::{Value, json};

use crate::engines::{Case, IMAGE, Lack, on_every_engine};

fn project(case: &Case) -> ProjectName {
    ProjectName::parse(case.name("stack").as_str()).unwrap()
}

async fn model(case: &Case, content: &Value, env: &[(&str, &str)]) -> coracle_runtime::Result<Value> {
    let dir = tempfile::tempdir().unwrap();
    let env: BTreeMap<_, _> = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let source = StackSource { project: project(case), content: content.to_string(), dir: dir.path().to_owned(), env };
    case.runtime.stack_model(&source).await
}

async fn up(case: &Case, content: &Value) -> (bool, BTreeMap<String, Container>) {
    let model = model(case, content, &[]).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (project, patience) = (project(case), Duration::from_secs(20));
    let stack = StackUp { project, model, dir: dir.path().to_owned(), patience, build: false };
    let told = case.runtime.stack_up(&stack).await.unwrap();
    (told.is_none(), there(case).await)
}

async fn there(case: &Case) -> BTreeMap<String, Container> {
    let mut there = BTreeMap::new();
    for service in case.runtime.list(&of_project(case)).await.unwrap() {
        there.insert(service.labels["com.docker.compose.service"].clone(), service);
    }
    there
}

fn of_project(case: &Case) -> LabelFilter {
    LabelFilter(vec![("com.docker.compose.project".into(), Some(project(case).to_string()))])
}

/// Runs until it is signalled: a mere `sleep` as PID 1 ignores signals.
fn on(first: &str) -> Value {
    json!(["sh", "-c", format!("{first}; trap 'exit 0' TERM; sleep 600 & wait")])
}

/// With labels of the case, so that nothing remains when a check fails.
fn stack(case: &Case, mut services: Value) -> Value {
    let (key, value) = case.label();
    let labels = json!({ key: value });
    for service in services.as_object_mut().unwrap().values_mut() {
        (service["image"], service["labels"], service["pull_policy"]) = (IMAGE.into(), labels.clone(), "never".into());
    }
    json!({ "services": services, "networks": { "default": { "labels": labels.clone() } },
        "volumes": { "data": { "labels": labels } } })
}

#[tokio::test]
async fn a_stack_comes_up_is_seen_and_leaves_nothing() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Compose) {
            return;
        }
        let (goes_on, ended) = (on("true"), json!(["sh", "-c", "exit 3"]));
        let content = stack(case, json!({
            "db": { "command": goes_on, "volumes": ["data:/data"], "ports": [{ "target": 5432, "host_ip": "127.0.0.1" }] },
            "once": { "command": ended },
        }));
        let (_, there) = up(case, &content).await;
        let (db, once) = (&there["db"], &there["once"]);
        assert_eq!((db.status, once.status, once.exit_code), (ContainerStatus::Running, ContainerStatus::Exited, Some(3)), "{there:?}");
        assert_eq!((db.networks.clone(), db.health), (vec![format!("{}_default", project(case))], None));
        assert!(db.ports.iter().any(|it| it.container == 5432 && it.address.is_loopback()), "{:?}", db.ports);
        assert_eq!(case.runtime.list_volumes(&of_project(case)).await.unwrap().len(), 1);
        for _ in 0..2 {
            case.runtime.stack_down(&project(case)).await.unwrap();
        }
        assert!(case.runtime.list(&of_project(case)).await.unwrap().is_empty());
        assert!(case.runtime.list_volumes(&of_project(case)).await.unwrap().is_empty());
        assert!(case.runtime.list_networks(&of_project(case)).await.unwrap().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_file_is_filled_from_what_is_given_and_its_dollars_stay() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Compose) {
            return;
        }
        let content = stack(case, json!({ "a": { "environment": { "IT": "${GIVEN} ${HOME} ${PATH}" } } }));
        let read = model(case, &content, &[("GIVEN", "a$b"), ("DOCKER_HOST", "tcp://nowhere")]).await.unwrap();
        assert_eq!(read["services"]["a"]["environment"]["IT"], "a$b  ");
        assert_eq!(read["networks"]["default"]["name"], format!("{}_default", project(case)));
        let refused = model(case, &json!({ "services": "none" }), &[]).await;
        assert!(matches!(&refused, Err(Error::Engine { verb: "compose config", .. })), "{refused:?}");
    })
    .await;
}

async fn health(case: &Case, id: &ContainerId) -> Option<Health> {
    case.runtime.check_health(id).await.unwrap()
}

#[tokio::test]
async fn what_a_service_says_and_how_it_is_can_be_asked() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Compose) {
            return;
        }
        if !case.is_real() {
            return case.left_out();
        }
        let words = on("echo to out; echo to err >&2");
        let check = |test: &str| json!({ "test": ["CMD", test], "interval": "1s", "retries": 2 });
        let content = stack(
            case,
            json!({
                "well": { "command": words, "healthcheck": check("true") },
                "ill": { "command": on("true"), "healthcheck": check("false") },
                "plain": { "command": on("true") },
            }),
        );
        let model = model(case, &content, &[]).await.unwrap();
        let (project, dir) = (project(case), tempfile::tempdir().unwrap());
        let patience = Duration::from_secs(3);
        let stack = StackUp { project, model, dir: dir.path().to_owned(), patience, build: false };
        // One of them is never healthy. Compose reports that, unless it looked before Podman reported any health.
        case.runtime.stack_up(&stack).await.unwrap();
        let there = there(case).await;
        let log = String::from_utf8(case.runtime.logs(&there["well"].id, 1000).await.unwrap()).unwrap();
        assert!(log.contains("to out\n") && log.contains("to err\n"), "{log}");
        assert_eq!(case.runtime.logs(&there["well"].id, 3).await.unwrap().len(), 3);
        assert_eq!(health(case, &there["plain"].id).await, None);
        for (service, wanted) in [("well", Health::Healthy), ("ill", Health::Unhealthy)] {
            let mut seen = None;
            for _ in 0..20 {
                seen = health(case, &there[service].id).await;
                if seen == Some(wanted) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            assert_eq!(seen, Some(wanted), "{service}");
        }
        case.runtime.stack_down(&stack.project).await.unwrap();
    })
    .await;
}
