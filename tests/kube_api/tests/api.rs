//! The server as the `kube` crate sees it. Its containers are those of the fake engine, whose commands are programs of
//! the host.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use coracle_kube_api::{Backing, ClusterOptions, Fault, FaultRule, KubeApi};
use coracle_runtime::{ContainerRuntime, FakeRuntime};
use futures_util::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{
    AttachParams, AttachedProcess, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const NAMESPACE: &str = "coracle";

fn start(options: ClusterOptions) -> KubeApi {
    let fake: Arc<dyn ContainerRuntime> = Arc::new(FakeRuntime::with_programs());
    KubeApi::start(options, Backing::new(Arc::clone(&fake), fake)).unwrap()
}

async fn client(api: &KubeApi) -> Client {
    let kubeconfig: Kubeconfig = serde_json::from_value(api.kubeconfig(NAMESPACE)).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": { "name": name, "labels": { "app": "test" } },
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "busybox:latest", "command": ["sleep", "1000"] }],
        },
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

async fn running(pods: &Api<Pod>, name: &str) {
    reached(pods, name, |it| it.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"))).await;
}

async fn reached(pods: &Api<Pod>, name: &str, is_there: impl Fn(&Pod) -> bool) -> Pod {
    let mut last = None;
    for _ in 0..1000 {
        let seen = pods.get(name).await.unwrap();
        if is_there(&seen) {
            return seen;
        }
        last = Some(seen);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} stays as {last:?}");
}

/// Runs a command with input; whether its input is closed at its end.
async fn exec(
    pods: &Api<Pod>,
    name: &str,
    script: &str,
    input: &[u8],
    close: bool,
) -> (String, String, Option<Status>) {
    let params = AttachParams::default().stdin(true).stderr(true);
    let mut process = pods.exec(name, ["sh", "-c", script], &params).await.unwrap();
    let (mut stdin, mut stdout) = (process.stdin().unwrap(), process.stdout().unwrap());
    let (mut stderr, status) = (process.stderr().unwrap(), process.take_status().unwrap());
    stdin.write_all(input).await.unwrap();
    if close {
        stdin.shutdown().await.unwrap();
    }
    let (mut out, mut err) = (String::new(), String::new());
    let (_, _, status) = tokio::join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err), status);
    drop(stdin);
    (out, err, status)
}

fn exit_code(status: Option<Status>) -> Option<String> {
    let causes = status?.details?.causes?;
    causes.into_iter().find(|it| it.reason.as_deref() == Some("ExitCode"))?.message
}

#[tokio::test]
async fn exec_of_version_5_has_output_exit_codes_and_the_end_of_input() {
    let api = start(ClusterOptions::default());
    let pods: Api<Pod> = Api::default_namespaced(client(&api).await);
    pods.create(&PostParams::default(), &pod("one", |_| {})).await.unwrap();
    running(&pods, "one").await;
    let (out, err, status) = exec(&pods, "one", "cat; echo no >&2; exit 42", b"to the end", true).await;
    assert_eq!((out.as_str(), err.as_str()), ("to the end", "no\n"));
    assert_eq!(exit_code(status).as_deref(), Some("42"));
    let (out, _, status) = exec(&pods, "one", "exit 0", b"", true).await;
    assert_eq!((out.as_str(), status.unwrap().status.as_deref()), ("", Some("Success")));
}

#[tokio::test]
async fn exec_of_version_4_keeps_its_input_open() {
    let api = start(ClusterOptions { closes_streams: false, ..ClusterOptions::default() });
    let pods: Api<Pod> = Api::default_namespaced(client(&api).await);
    pods.create(&PostParams::default(), &pod("one", |_| {})).await.unwrap();
    running(&pods, "one").await;
    let (out, _, status) = exec(&pods, "one", "head -c 4; exit 3", b"four and more", false).await;
    assert_eq!((out.as_str(), exit_code(status).as_deref()), ("four", Some("3")));
}

/// A Pod whose init container prints its input in capitals.
fn with_init(name: &str) -> Pod {
    pod(name, |it| {
        it["spec"]["initContainers"] = json!([{
            "name": "bring", "image": "busybox:latest", "command": ["sh", "-c", "head -c 3 | tr a-z A-Z"],
            "stdin": true, "stdinOnce": true,
        }]);
    })
}

#[tokio::test]
async fn an_init_container_reads_what_is_attached_to_it_and_then_the_pod_runs() {
    let api = start(ClusterOptions::default());
    let pods: Api<Pod> = Api::default_namespaced(client(&api).await);
    pods.create(&PostParams::default(), &with_init("init")).await.unwrap();
    reached(&pods, "init", |it| {
        let statuses = it.status.as_ref().and_then(|it| it.init_container_statuses.clone()).unwrap_or_default();
        statuses.first().is_some_and(|it| it.state.as_ref().is_some_and(|it| it.running.is_some()))
    })
    .await;
    let params = AttachParams::default().container("bring").stdin(true).stderr(false);
    let mut attached = pods.attach("init", &params).await.unwrap();
    assert_eq!(answer(&mut attached, b"abc").await, "ABC");
    running(&pods, "init").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_reaches_an_init_container_that_begins_just_now() {
    let api = start(ClusterOptions::default());
    let pods: Api<Pod> = Api::default_namespaced(client(&api).await);
    let params = AttachParams::default().container("bring").stdin(true).stderr(false);
    let attach = async |name: String| {
        pods.create(&PostParams::default(), &with_init(&name)).await.unwrap();
        loop {
            if let Ok(mut attached) = pods.attach(&name, &params).await {
                return answer(&mut attached, b"abc").await;
            }
        }
    };
    let answers = futures_util::future::join_all((0..50).map(|at| attach(format!("init{at}"))));
    let answers = tokio::time::timeout(Duration::from_secs(60), answers).await.unwrap();
    assert_eq!(answers, vec!["ABC"; 50]);
}

/// The output of an attached program after this input.
async fn answer(attached: &mut AttachedProcess, input: &[u8]) -> String {
    let (mut stdin, mut stdout) = (attached.stdin().unwrap(), attached.stdout().unwrap());
    stdin.write_all(input).await.unwrap();
    let mut out = String::new();
    stdout.read_to_string(&mut out).await.unwrap();
    out
}

#[tokio::test]
async fn lists_are_paged_and_expire() {
    let api = start(ClusterOptions::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&api).await);
    for at in 0..5 {
        let map = json!({ "metadata": { "name": format!("m{at}"), "labels": { "even": (at % 2 == 0).to_string() } } });
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    }
    let page = |token: Option<String>| ListParams { limit: Some(2), continue_token: token, ..ListParams::default() };
    let first = maps.list(&page(None)).await.unwrap();
    let second = maps.list(&page(first.metadata.continue_.clone())).await.unwrap();
    let third = maps.list(&page(second.metadata.continue_.clone())).await.unwrap();
    let names = [&first, &second, &third]
        .map(|it| it.items.iter().map(|it| it.metadata.name.clone().unwrap()).collect::<Vec<_>>().join(" "));
    assert_eq!(names, ["m0 m1", "m2 m3", "m4"].map(str::to_owned));
    assert_eq!((first.metadata.remaining_item_count, third.metadata.continue_), (Some(3), None));
    assert_eq!(maps.list(&ListParams::default().labels("even=true")).await.unwrap().items.len(), 3);
    api.forget_versions();
    let expired = maps.list(&page(first.metadata.continue_)).await;
    assert!(matches!(&expired, Err(kube::Error::Api(status)) if status.code == 410), "{expired:?}");
}

#[tokio::test]
async fn a_watch_tells_changes_and_expires() {
    let api = start(ClusterOptions::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&api).await);
    let before = maps.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    let one: ConfigMap =
        serde_json::from_value(json!({ "metadata": { "name": "one", "labels": { "a": "1" } } })).unwrap();
    maps.create(&PostParams::default(), &one).await.unwrap();
    let patch = json!({ "metadata": { "labels": { "a": "2" } } });
    maps.patch("one", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    maps.delete("one", &DeleteParams::default()).await.unwrap();
    let params = WatchParams::default().labels("a=1").timeout(1);
    let events = maps.watch(&params, &before).await.unwrap().boxed();
    let kinds: Vec<&str> = events
        .map_ok(|it| match it {
            WatchEvent::Added(_) => "added",
            WatchEvent::Modified(_) => "modified",
            WatchEvent::Deleted(_) => "deleted",
            WatchEvent::Bookmark(_) => "bookmark",
            WatchEvent::Error(_) => "error",
        })
        .try_collect()
        .await
        .unwrap();
    assert_eq!(kinds.iter().filter(|it| **it != "bookmark").collect::<Vec<_>>(), [&"added", &"deleted"]);
    assert!(kinds.contains(&"bookmark"), "{kinds:?}");
    api.forget_versions();
    let expired = maps.watch(&params, &before).await.unwrap().boxed().try_next().await.unwrap();
    assert!(matches!(&expired, Some(WatchEvent::Error(status)) if status.code == 410), "{expired:?}");
}

#[tokio::test]
async fn a_pod_is_deleted_with_what_it_owns() {
    let api = start(ClusterOptions::default());
    let client = client(&api).await;
    let (pods, maps): (Api<Pod>, Api<ConfigMap>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client));
    let made = pods.create(&PostParams::default(), &pod("owner", |_| {})).await.unwrap();
    let owner = json!({ "apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": made.metadata.uid.unwrap() });
    let owned = json!({ "metadata": { "name": "owned", "ownerReferences": [owner] } });
    maps.create(&PostParams::default(), &serde_json::from_value(owned).unwrap()).await.unwrap();
    running(&pods, "owner").await;
    let marked =
        pods.delete("owner", &DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() }).await.unwrap();
    assert!(marked.left().unwrap().metadata.deletion_timestamp.is_some());
    while pods.get_opt("owner").await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(maps.get_opt("owned").await.unwrap().is_none());
}

#[tokio::test]
async fn the_fake_cluster_refuses_with_the_messages_of_a_real_one() {
    let api = start(ClusterOptions::default());
    let client = client(&api).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let refused = async |pod: Pod| match pods.create(&PostParams::default(), &pod).await {
        Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
        other => panic!("{other:?}"),
    };
    let (code, why) = refused(pod("a", |it| it["metadata"]["labels"]["at"] = json!("12:00"))).await;
    assert!(code == 422 && why.contains("metadata.labels"), "{code} {why}");
    let (code, why) = refused(pod("a", |it| it["spec"]["serviceAccountName"] = json!("none"))).await;
    assert!(code == 403 && why.contains("serviceaccount \"none\" not found"), "{code} {why}");
    api.fault(FaultRule::once(Fault::Webhook("no".into()), "POST", "/pods"));
    assert_eq!(refused(pod("a", |_| {})).await.0, 403);
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client);
    let quota = json!({ "metadata": { "name": "few" }, "spec": { "hard": { "pods": "1" } } });
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    pods.create(&PostParams::default(), &pod("first", |_| {})).await.unwrap();
    let (code, why) = refused(pod("second", |_| {})).await;
    assert!(
        code == 403 && why.contains("exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1"),
        "{why}"
    );
}

#[tokio::test]
async fn a_lost_node_keeps_its_pods_and_answers_no_exec() {
    let api = start(ClusterOptions { nodes: vec!["only".into()], ..ClusterOptions::default() });
    let pods: Api<Pod> = Api::default_namespaced(client(&api).await);
    pods.create(&PostParams::default(), &pod("one", |_| {})).await.unwrap();
    running(&pods, "one").await;
    let params = AttachParams::default();
    let mut open = pods.exec("one", ["sleep", "1000"], &params).await.unwrap();
    api.lose_node("only");
    assert_eq!(open.take_status().unwrap().await, None);
    let seen = pods.get("one").await.unwrap().status.unwrap();
    assert_eq!(seen.phase.as_deref(), Some("Running"));
    assert!(seen.conditions.unwrap().iter().any(|it| it.type_ == "Ready" && it.status == "False"));
    assert!(pods.exec("one", ["true"], &params).await.is_err());
    let grace = DeleteParams { grace_period_seconds: Some(1), ..DeleteParams::default() };
    pods.delete("one", &grace).await.unwrap();
    assert!(pods.get("one").await.unwrap().metadata.deletion_timestamp.is_some());
    api.return_node("only");
    while pods.get_opt("one").await.unwrap().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_missing_image_and_an_eviction_are_reported_by_the_status() {
    let api = start(ClusterOptions::default());
    let pods: Api<Pod> = Api::default_namespaced(client(&api).await);
    let missing = pod("missing", |it| it["spec"]["containers"][0]["image"] = json!("127.0.0.1:1/nowhere:1"));
    pods.create(&PostParams::default(), &missing).await.unwrap();
    let reason = |it: &Pod| {
        let statuses = it.status.clone()?.container_statuses?;
        statuses.first()?.state.clone()?.waiting?.reason
    };
    reached(&pods, "missing", |it| reason(it).as_deref() == Some("ImagePullBackOff")).await;
    pods.create(&PostParams::default(), &pod("one", |_| {})).await.unwrap();
    running(&pods, "one").await;
    api.evict(NAMESPACE, "one");
    let evicted =
        reached(&pods, "one", |it| it.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Failed"))).await;
    assert_eq!(evicted.status.unwrap().reason.as_deref(), Some("Evicted"));
}

#[tokio::test]
async fn all_that_is_sent_is_in_the_audit_log_and_faults_are_met_once() {
    let api = start(ClusterOptions::default());
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&api).await);
    let map = json!({ "metadata": { "name": "a" }, "data": { "a": "canary-in-a-body" } });
    api.fault(FaultRule::once(Fault::TooManyRequests(1), "GET", "/configmaps"));
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
    let refused = maps.get_opt("canary-in-a-path").await;
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 429) || refused.is_ok(), "{refused:?}");
    maps.get_opt("canary-in-a-path").await.unwrap();
    let audit = api.audit();
    assert!(audit.iter().any(|it| it.method == "POST" && it.body.contains("canary-in-a-body") && it.code == 201));
    assert!(audit.iter().any(|it| it.uri.contains("canary-in-a-path") && it.code == 404));
    assert!(audit.iter().any(|it| it.code == 429));
}

#[tokio::test]
async fn without_the_token_nothing_is_served() {
    let api = start(ClusterOptions::default());
    let mut kubeconfig = api.kubeconfig(NAMESPACE);
    kubeconfig["users"][0]["user"]["token"] = json!("another");
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(Client::try_from(config).unwrap());
    let refused = pods.list(&ListParams::default()).await;
    assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 401), "{refused:?}");
}
