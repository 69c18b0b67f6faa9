//! Stacks by Compose, on every engine.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_runtime::stack_model::StackModel;
use coracle_runtime::{Container, Health, LabelFilter, StackUp};
use coracle_types::{ContainerId, ContainerStatus, ProjectName};
use serde_json::{Value, json};

use crate::engines::{Case, IMAGE, Lack, on_every_engine};

fn project(case: &Case) -> ProjectName {
    ProjectName::parse(case.name("stack").as_str()).unwrap()
}

fn stack_up(case: &Case, model: StackModel, patience: Duration) -> StackUp {
    StackUp { project: project(case), model, dir: std::env::temp_dir(), patience, build: false }
}

async fn up(case: &Case, model: StackModel) -> BTreeMap<String, Container> {
    case.runtime.check_stack(&model).await.unwrap();
    case.runtime.stack_up(&stack_up(case, model, Duration::from_secs(20))).await.unwrap();
    there(case).await
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

/// With labels of the case, so that a failed check leaves nothing.
fn stack(case: &Case, mut services: Value) -> StackModel {
    let (key, value) = case.label();
    let labels = json!({ key: value });
    for service in services.as_object_mut().unwrap().values_mut() {
        (service["image"], service["labels"], service["pull_policy"]) = (IMAGE.into(), labels.clone(), "never".into());
        service["networks"] = json!({ "default": {} });
    }
    let model = json!({ "services": services, "networks": { "default": { "labels": labels.clone() } },
        "volumes": { "data": { "labels": labels } } });
    serde_json::from_value(model).unwrap()
}

#[tokio::test]
async fn a_stack_starts_is_listed_and_leaves_nothing() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Compose) {
            return;
        }
        let (goes_on, ended) = (on("true"), json!(["sh", "-c", "exit 3"]));
        let content = stack(case, json!({
            "db": { "command": goes_on, "volumes": [{ "type": "volume", "source": "data", "target": "/data" }], "ports": [{ "target": 5432, "host_ip": "127.0.0.1" }] },
            "once": { "command": ended },
        }));
        let there = up(case, content).await;
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
async fn a_dollar_of_a_model_is_a_dollar() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Compose) {
            return;
        }
        let content = stack(case, json!({ "a": { "command": on("true"), "environment": { "IT": "a$b ${HOME} $$" } } }));
        let there = up(case, content).await;
        assert!(there["a"].env.contains(&"IT=a$b ${HOME} $$".to_owned()), "{:?}", there["a"].env);
        case.runtime.stack_down(&project(case)).await.unwrap();
    })
    .await;
}

async fn health(case: &Case, id: &ContainerId) -> Option<Health> {
    case.runtime.check_health(id).await.unwrap()
}

#[tokio::test]
async fn logs_and_health_of_a_service_can_be_queried() {
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
        let stack = stack_up(case, content, Duration::from_secs(3));
        // One of them is never healthy. Compose reports that, unless it checked before Podman reported any health.
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
