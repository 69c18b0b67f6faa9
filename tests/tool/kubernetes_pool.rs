//! The tool on a simulated cluster: lifetimes, owned objects, logins of registries, warm pools.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coracle_kube_api::{Fault, FaultRule, KubeApi};
use coracle_runtime::{NetworkCreate, Networks as _};
use coracle_types::NetworkName;
use serde_json::{Value, json};

use super::Tool;
use super::kubernetes::{has_a_cluster, on_a_played_cluster};
use super::person::Person;
use crate::engines::ran;

const NAMESPACE: &str = "coracle";

const POOL: &str = "warm";

/// Adds lines to the table `kubernetes` of the user's configuration.
fn configure(tool: &Tool<'_>, lines: &str) {
    let file = tool.root.path().join("config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, text.replace("[kubernetes]\n", &format!("[kubernetes]\n{lines}\n"))).unwrap();
}

/// The object whose metadata names a container.
fn object_of(api: &KubeApi, plural: &str, container: &str) -> Value {
    let objects = api.objects(plural);
    let found = objects.iter().find(|it| it["metadata"]["annotations"]["coracle.dev/name"] == container);
    found.unwrap_or_else(|| panic!("{objects:#?}")).clone()
}

async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn k05_a_cluster_ends_a_container_at_its_limit_and_the_answer_says_so() {
    if !has_a_cluster() {
        return crate::engines::skip("kubernetes");
    }
    on_a_played_cluster(Person::new(""), async |tool, api| {
        let usual = tool.created(json!({})).await;
        assert_eq!(object_of(api, "pods", &usual)["spec"]["activeDeadlineSeconds"], 7 * 86400);
        configure(tool, "max_lifetime = \"15s\"");
        let lasting = tool.created(json!({ "persistent": true })).await;
        assert_eq!(object_of(api, "pods", &lasting)["spec"]["activeDeadlineSeconds"], Value::Null);
        let limited = tool.created(json!({})).await;
        until(|| object_of(api, "pods", &limited)["status"]["reason"] == "DeadlineExceeded").await;
        let answer = tool.exec(&limited, "true").await;
        assert_eq!((&answer["code"], &answer["details"]["limit_s"]), (&"not_running".into(), &15.into()), "{answer:#}");
        assert!(answer["hint"].as_str().unwrap().contains("persistent"), "{answer:#}");
        assert!(answer["error"].as_str().unwrap().contains("15 s"), "{answer:#}");
        assert_eq!(tool.prints(&lasting, "echo in").await, "in");
        ran("k05", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn k06_objects_of_a_network_are_removed_with_it_and_volumes_stay() {
    if !has_a_cluster() {
        return crate::engines::skip("kubernetes");
    }
    on_a_played_cluster(Person::new(""), async |tool, api| {
        let runtime = tool.case.kube().unwrap().connect().unwrap();
        let name = NetworkName::parse("team").unwrap();
        let network = NetworkCreate { name, labels: vec![], reach: true, internal: false };
        runtime.create_network(&network).await.unwrap();
        let service = &api.objects("services")[0];
        assert_eq!(service["metadata"]["ownerReferences"][0]["kind"], "NetworkPolicy", "{service:#}");
        // The process ends after the first of two requests.
        let fault = Fault::Webhook("no".into());
        api.fault(FaultRule::once(fault, "GET", "/services/team"));
        assert!(runtime.remove_network("team").await.is_err());
        until(|| api.objects("services").is_empty()).await;
        // A Service left from another network is not used for the new one.
        runtime.create_network(&network).await.unwrap();
        let before = api.objects("services")[0]["metadata"]["uid"].clone();
        api.remove("networkpolicies", NAMESPACE, "team");
        runtime.create_network(&network).await.unwrap();
        let policies = api.objects("networkpolicies");
        let policy = policies.iter().find(|it| it["metadata"]["name"] == "team").unwrap();
        let service = &api.objects("services")[0]["metadata"];
        assert_ne!(service["uid"], before);
        assert_eq!(service["ownerReferences"][0]["uid"], policy["metadata"]["uid"]);
        runtime.remove_network("team").await.unwrap();
        assert!(api.objects("services").is_empty());
        // A Service of another owner is neither used nor removed.
        api.add("services", NAMESPACE, "theirs", json!({ "apiVersion": "v1", "kind": "Service" }));
        let theirs = NetworkCreate { name: NetworkName::parse("theirs").unwrap(), ..network };
        assert!(runtime.create_network(&theirs).await.is_err());
        assert!(runtime.find_network(&theirs.name).await.unwrap().is_none());
        assert_eq!(api.objects("services").len(), 1);
        ran("k06", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn k07_a_registry_is_read_with_the_users_login() {
    if !has_a_cluster() {
        return crate::engines::skip("kubernetes");
    }
    on_a_played_cluster(Person::new(""), async |tool, api| {
        let password = "correct-horse-battery";
        api.demand_login("me", password);
        let refused = tool.create(json!({})).await;
        assert_eq!(refused["code"], "pull_failed", "{refused:#}");
        assert!(refused.to_string().contains(&format!("docker login {}", api.registry())), "{refused:#}");
        let login = |password: &str| {
            let dir = tool.home().join(".docker");
            std::fs::create_dir_all(&dir).unwrap();
            let auth = BASE64_STANDARD.encode(format!("me:{password}"));
            let config = json!({ "auths": { api.registry(): { "auth": auth } } });
            std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
        };
        login("a-wrong-password");
        let refused = tool.create(json!({})).await;
        assert_eq!(refused["code"], "pull_failed", "{refused:#}");
        assert!(refused.to_string().contains("config.json"), "the login is named: {refused:#}");
        assert!(!refused.to_string().contains("a-wrong-password"), "{refused:#}");
        login(password);
        let name = tool.created(json!({})).await;
        assert_eq!(tool.prints(&name, "echo in").await, "in");
        ran("k07", tool.case.engine());
    })
    .await;
}

/// A Pod template for a container, and a pool of two.
fn add_pool(api: &KubeApi, pod: &Value) {
    let mut spec = pod["spec"].clone();
    for field in ["nodeName", "hostname", "activeDeadlineSeconds"] {
        spec.as_object_mut().unwrap().remove(field);
    }
    let template = json!({ "spec": { "podTemplate": { "spec": spec } } });
    api.add("sandboxtemplates", NAMESPACE, "template", template);
    let pool = json!({ "spec": { "replicas": 2, "sandboxTemplateRef": { "name": "template" } } });
    api.add("sandboxwarmpools", NAMESPACE, POOL, pool);
}

fn ready_in_pool(api: &KubeApi) -> u64 {
    api.objects("sandboxwarmpools")[0]["status"]["readyReplicas"].as_u64().unwrap_or(0)
}

/// The only claim, which is of that container.
fn claim_of(api: &KubeApi, container: &str) -> Value {
    let claims = api.objects("sandboxclaims");
    assert_eq!(claims.len(), 1, "{claims:#?}");
    assert_eq!(claims[0]["metadata"]["name"], container);
    claims[0].clone()
}

#[tokio::test]
async fn k08_a_container_comes_from_a_warm_pool_if_its_pods_match() {
    if !has_a_cluster() {
        return crate::engines::skip("kubernetes");
    }
    on_a_played_cluster(Person::new(""), async |tool, api| {
        let guest = tool.case.kube().unwrap().guest_image().await;
        configure(tool, &format!("guest_image = \"{guest}\""));
        let own = tool.created(json!({})).await;
        let pod = object_of(api, "pods", &own);
        configure(tool, &format!("warm_pool = \"{POOL}\""));
        let missing = tool.create(json!({})).await;
        assert_eq!(missing["success"], false, "{missing:#}");
        assert!(missing.to_string().contains("the cluster has no agent-sandbox"), "{missing:#}");
        api.install_agent_sandbox();
        let missing = tool.create(json!({})).await;
        assert!(missing.to_string().contains("there is no SandboxWarmPool `warm`"), "{missing:#}");
        add_pool(api, &pod);
        until(|| ready_in_pool(api) == 2).await;

        let name = tool.created(json!({ "name": "from-pool" })).await;
        assert_eq!(tool.prints(&name, "echo in").await, "in");
        let bound = object_of(api, "pods", &name);
        assert_eq!(bound["metadata"]["ownerReferences"][0]["kind"], "Sandbox", "{bound:#}");
        let limit = bound["spec"]["activeDeadlineSeconds"].as_u64().unwrap();
        assert!((7 * 86400..7 * 86400 + 600).contains(&limit), "{limit}");
        let claim = claim_of(api, &name);
        assert_eq!(claim["spec"]["lifecycle"], Value::Null, "a container's claim does not expire");
        until(|| ready_in_pool(api) == 2).await;
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(listed["containers"].as_array().unwrap().len(), 2, "{listed:#}");

        // Another process finds it by its name.
        let runtime = tool.case.kube().unwrap().connect().unwrap();
        let handle = coracle_types::Handle::parse(&name).unwrap();
        let found = coracle_runtime::ContainerRuntime::inspect(&runtime, &handle).await.unwrap();
        assert!(found.running() && found.name == name);
        let taken = tool.create(json!({ "name": "from-pool", "memory_limit": "96m" })).await;
        assert_eq!(taken["code"], "name_taken", "{taken:#}");

        // A container that no Pod of the pool fits gets its own Pod, with the reason.
        for (more, reason) in
            [(json!({ "memory_limit": "96m" }), "resources"), (json!({ "network": "none" }), "network")]
        {
            let other = tool.created(more).await;
            let pod = object_of(api, "pods", &other);
            assert_eq!(pod["metadata"]["ownerReferences"], Value::Null, "{pod:#}");
            let why = pod["metadata"]["annotations"]["coracle.dev/not-from-warm-pool"].as_str().unwrap_or_default();
            assert!(why.contains(reason), "{why}");
        }
        let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
        assert_eq!(destroyed["success"], true, "{destroyed:#}");
        assert!(api.objects("sandboxclaims").is_empty());
        until(|| api.objects("pods").iter().all(|it| it["metadata"]["uid"] != bound["metadata"]["uid"])).await;
        let gone = tool.exec(&name, "true").await;
        assert_eq!(gone["success"], false, "{gone:#}");
        ran("k08", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn k09_a_pod_of_the_pool_that_is_weaker_than_its_template_is_not_taken() {
    if !has_a_cluster() {
        return crate::engines::skip("kubernetes");
    }
    on_a_played_cluster(Person::new(""), async |tool, api| {
        let guest = tool.case.kube().unwrap().guest_image().await;
        configure(tool, &format!("guest_image = \"{guest}\""));
        let own = tool.created(json!({})).await;
        let pod = object_of(api, "pods", &own);
        let mut old = pod.clone();
        old["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
        api.install_agent_sandbox();
        add_pool(api, &old);
        until(|| ready_in_pool(api) == 2).await;
        // The template is corrected, and the Pods that run are not.
        api.remove("sandboxtemplates", NAMESPACE, "template");
        add_pool(api, &pod);
        configure(tool, &format!("warm_pool = \"{POOL}\""));
        let name = tool.created(json!({})).await;
        let made = object_of(api, "pods", &name);
        assert_eq!(made["metadata"]["ownerReferences"], Value::Null, "{made:#}");
        let why = made["metadata"]["annotations"]["coracle.dev/not-from-warm-pool"].as_str().unwrap_or_default();
        assert!(why.contains("older than its template") && why.contains("securityContext"), "{why}");
        assert!(api.objects("sandboxclaims").is_empty(), "the claim is given back");
        assert_eq!(tool.prints(&name, "echo in").await, "in");
        ran("k09", tool.case.engine());
    })
    .await;
}
