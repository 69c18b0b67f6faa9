//! The tool on a simulated cluster: secrets in the cluster's log, lost nodes, and quotas.

use std::collections::BTreeMap;

use coracle::CallInput;
use coracle_context::{Frontend, Host, Options};
use coracle_kube_api::{Fault, FaultRule, KubeApi};
use coracle_prepare::Process;
use coracle_types::EngineKind;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::Tool;
use super::canary::Canaries;
use super::person::Person;
use super::work::with_agent_on;
use crate::engines::{meets_a_cluster, ran, variable};

/// Kinds of objects that could contain a secret, apart from those for secrets.
const KINDS: [&str; 8] =
    ["pods", "events", "configmaps", "services", "networkpolicies", "leases", "persistentvolumeclaims", "secrets"];

/// Runs a check on a simulated cluster. A real one has no injected faults and no log here.
pub(super) async fn on_a_played_cluster(person: Person, check: impl AsyncFn(&Tool<'_>, &KubeApi)) {
    person
        .on_one_engine(EngineKind::Kubernetes, async |tool| match tool.case.kube().and_then(|it| it.api()) {
            Some(api) => check(tool, api).await,
            None => tool.case.left_out(),
        })
        .await;
}

/// Whether there is anything to run on, and this test is of the run: these tests have no meaning for the other engines.
pub(super) fn has_a_cluster() -> bool {
    let is_named = variable("CORACLE_ENGINES").unwrap_or_default().split(',').any(|it| it.trim() == "kubernetes");
    is_named && meets_a_cluster(&coracle_skips::test_name())
}

#[tokio::test]
async fn k01_no_secret_is_in_what_a_cluster_is_sent_or_keeps() {
    if !has_a_cluster() {
        return crate::engines::skip("kubernetes");
    }
    let mut canaries = Canaries::default();
    let (passed, of_create, of_exec) =
        (canaries.hatch("passed through"), canaries.hatch("env of create"), canaries.hatch("env of exec"));
    let person = Person::new("").with_env("NPM_TOKEN", &passed);
    on_a_played_cluster(person, async |tool, api| {
        let name = tool.created(json!({ "env": { "DB_PASSWORD": of_create } })).await;
        let length = "printf %s \"$NPM_TOKEN$DB_PASSWORD$MORE_TOKEN\" | wc -c";
        let exec = json!({
            "operation": "exec", "container": name, "command": length, "env": { "MORE_TOKEN": of_exec },
        });
        let answer = tool.call(exec).await;
        let expected = (passed.len() + of_create.len() + of_exec.len()).to_string();
        assert_eq!(
            answer["stdout"].as_str().unwrap_or_default().trim(),
            expected,
            "they reach the command: {answer:#}"
        );
        let audit = api.audit();
        assert!(audit.iter().any(|it| it.uri.contains("/exec?")) && audit.iter().any(|it| it.method == "POST"));
        for line in audit {
            canaries.absent("the address of a request", line.uri.as_bytes());
            canaries.absent("the body of a request", line.body.as_bytes());
        }
        for kind in KINDS {
            canaries.absent(kind, Value::from(api.objects(kind)).to_string().as_bytes());
        }
        ran("k01", tool.case.engine());
    })
    .await;
}

/// The node of a container's Pod.
fn node_of(api: &KubeApi, container: &str) -> String {
    let pods = api.objects("pods");
    let pod = pods.iter().find(|it| it["metadata"].to_string().contains(container));
    pod.and_then(|it| it["spec"]["nodeName"].as_str()).unwrap_or_else(|| panic!("{pods:#?}")).to_owned()
}

#[tokio::test]
async fn k02_a_lost_node_is_reported_and_leaves_no_orphan() {
    if !has_a_cluster() {
        return crate::engines::skip("kubernetes");
    }
    on_a_played_cluster(Person::new("[security]\nallow_discard = true\n"), async |tool, api| {
        let name = tool.created(json!({})).await;
        let node = node_of(api, &name);
        let lose_node = async {
            while !tool.prints(&name, "ls /tmp").await.contains("begun") {}
            api.lose_node(&node);
        };
        let running = tool.exec(&name, "touch /tmp/begun; sleep 600");
        let (running, ()) = tokio::join!(running, lose_node);
        for answer in [running, tool.exec(&name, "true").await] {
            assert_eq!((&answer["success"], &answer["code"]), (&false.into(), &"node_lost".into()), "{answer:#}");
            assert!(answer["hint"].as_str().is_some_and(|it| !it.is_empty()), "{answer:#}");
        }
        let destroyed = tool.call(json!({ "operation": "destroy", "container": name, "discard": true })).await;
        api.return_node(&node);
        while !api.objects("pods").is_empty() {
            tokio::task::yield_now().await;
            if destroyed["success"] != true {
                let again = tool.call(json!({ "operation": "destroy", "container": name, "discard": true })).await;
                assert_eq!(again["success"], true, "{destroyed:#} {again:#}");
            }
        }
        ran("k02", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn k03_a_session_continues_on_another_node_and_reports_the_lost_one_once() {
    if !has_a_cluster() {
        return crate::engines::skip("kubernetes");
    }
    with_agent_on(EngineKind::Kubernetes, "", async |agent| {
        let Some(api) = agent.case().kube().and_then(|it| it.api()) else { return };
        agent.value("write_file", json!({ "file_path": "a", "content": "kept" })).await;
        let node = node_of(api, &agent.container("workspace").unwrap());
        api.lose_node(&node);
        let first = agent.call("ls", json!({})).await;
        assert_eq!((&first["success"], &first["workspace"]["generation"]), (&true.into(), &2.into()), "{first:#}");
        let codes: Vec<&Value> = first["warnings"].as_array().unwrap().iter().map(|it| &it["code"]).collect();
        assert!(codes.contains(&&Value::from("workspace_recreated")), "{first:#}");
        assert!(first["warnings"].to_string().contains("(node_lost)"), "{first:#}");
        let again = agent.call("ls", json!({})).await;
        assert_eq!(again["warnings"], json!([]), "{again:#}");
        api.return_node(&node);
        ran("k03", EngineKind::Kubernetes);
    })
    .await;
}

const MANY: usize = 200;

const ALLOWED: usize = 10;

#[tokio::test]
async fn k04_two_hundred_creates_at_once_keep_a_quota_and_leave_nothing() {
    if !has_a_cluster() {
        return crate::engines::skip("kubernetes");
    }
    on_a_played_cluster(Person::new(""), async |tool, api| {
        api.limit_pods("coracle", ALLOWED);
        // Some of them meet a server that has too much to do.
        api.fault(FaultRule {
            fault: Fault::TooManyRequests(1),
            method: "POST".into(),
            path: "/pods".into(),
            times: 20,
        });
        let process = process_of(tool);
        let calls = (0..MANY).map(|_| {
            let call = tool.case.with_image(&tool.create_call(json!({})).to_string()).into_bytes();
            coracle::execute(coracle::operations::ALL, &process, CallInput::Text(call))
        });
        let answers: Vec<Value> = join_all(calls).await.into_iter().map(|response| response.json.into()).collect();
        let mut codes: BTreeMap<String, usize> = BTreeMap::new();
        for answer in &answers {
            *codes.entry(answer["code"].as_str().unwrap_or("made").to_owned()).or_default() += 1;
        }
        assert_eq!(codes.values().sum::<usize>(), MANY);
        assert!(codes.get("made").is_some_and(|it| (1..=ALLOWED).contains(it)), "{codes:?}");
        // On a slow machine some wait too long for their turn.
        let known = ["made", "quota_exceeded", "limit_reached", "busy"];
        assert!(codes.keys().all(|it| known.contains(&it.as_str())), "{codes:?}");
        assert!(codes.contains_key("quota_exceeded"), "{codes:?}");
        assert!(api.audit().iter().any(|it| it.code == 429));
        let all = json!({ "operation": "destroy_all", "confirm": true, "scope": "all" });
        let destroyed = tool.call(all).await;
        assert_eq!(destroyed["success"], true, "{destroyed:#}");
        while !api.objects("pods").is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(listed["containers"], json!([]), "{listed:#}");
        ran("k04", tool.case.engine());
    })
    .await;
}

/// The library in this process, with the user's configuration.
fn process_of(tool: &Tool<'_>) -> Process {
    let root = tool.root.path().canonicalize().unwrap();
    let host = Host { state_home: root.join("state"), ..Host::below(&root) };
    let options = Options { config: Some(root.join("config.toml")), ..Options::default() };
    Process::open(host, &options, Frontend::Call).unwrap()
}
