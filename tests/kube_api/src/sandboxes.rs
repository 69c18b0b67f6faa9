//! The controller of agent-sandbox: it keeps pools of Pods, and binds them to claims.

use std::sync::Arc;
use std::time::Duration;

use coracle_types::random_hex;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::cluster::{Cluster, now, stamp};
use crate::conditions::set_condition;
use crate::kinds::{KINDS, Target};
use crate::query::Query;
use crate::store::Key;
use crate::verbs::{self, ObjectRequest};

/// Group of claims, pools and templates.
pub(crate) const EXTENSIONS: &str = "extensions.agents.x-k8s.io";

/// Group of Sandboxes.
pub(crate) const AGENTS: &str = "agents.x-k8s.io";

/// Label of a Sandbox that no claim has yet: its pool.
const POOL: &str = "agents.x-k8s.io/warm-pool-sandbox";

/// Claims expire, which changes no object.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Works until the server ends.
pub(crate) async fn run(cluster: Arc<Cluster>) {
    let mut changed = cluster.store.subscribe();
    loop {
        changed.borrow_and_update();
        if cluster.has_agent_sandbox() {
            reconcile(&cluster);
        }
        if let Ok(Err(_)) = timeout(LOOK_AGAIN, changed.changed()).await {
            return;
        }
    }
}

fn reconcile(cluster: &Arc<Cluster>) {
    for (key, claim) in cluster.store.list("sandboxclaims", None).objects {
        // The API's times are compared as texts: all have one form.
        let expires = claim["spec"]["lifecycle"]["shutdownTime"].as_str();
        if expires.is_some_and(|it| *it < *now()) {
            cluster.collect(&key);
        } else if claim["status"]["sandbox"]["name"].is_null() {
            bind(cluster, &key, &claim);
        }
    }
    for (key, pool) in cluster.store.list("sandboxwarmpools", None).objects {
        fill(cluster, &key, &pool);
    }
    for (key, sandbox) in cluster.store.list("sandboxes", None).objects {
        ensure_pod(cluster, &key, &sandbox);
    }
}

fn fill(cluster: &Arc<Cluster>, key: &Key, pool: &Value) {
    let members = members(cluster, key);
    let ready = members.iter().filter(|(it, _)| is_ready(cluster, it)).count();
    let wanted = pool["spec"]["replicas"].as_u64().unwrap_or(1);
    for _ in members.len() as u64..wanted {
        make(cluster, key, pool, &owner(pool), true);
    }
    let status = json!({ "replicas": members.len(), "readyReplicas": ready });
    let _ = cluster.store.update(key, |it| {
        it["status"] = status;
        Ok(())
    });
}

/// Sandboxes of a pool that no claim has.
fn members(cluster: &Cluster, pool: &Key) -> Vec<(Key, Value)> {
    let all = cluster.store.list("sandboxes", Some(&pool.namespace)).objects;
    all.into_iter().filter(|(_, it)| it["metadata"]["labels"][POOL] == pool.name.as_str()).collect()
}

fn is_ready(cluster: &Cluster, sandbox: &Key) -> bool {
    let pod = cluster.store.get(&Key::pod(&sandbox.namespace, &sandbox.name));
    pod.is_some_and(|it| it["status"]["phase"] == "Running")
}

/// Assigns a ready Sandbox to a claim, else a new one.
fn bind(cluster: &Arc<Cluster>, key: &Key, claim: &Value) {
    let name = claim["spec"]["warmPoolRef"]["name"].as_str().unwrap_or_default();
    let pool_key = Key { plural: "sandboxwarmpools", namespace: key.namespace.clone(), name: name.to_owned() };
    let Some(pool) = cluster.store.get(&pool_key) else {
        let _ = cluster.store.update(key, |it| {
            set_condition(it, "Ready", "False", "WarmPoolNotFound", &format!("SandboxWarmPool \"{name}\" not found"));
            Ok(())
        });
        return;
    };
    let warm = members(cluster, &pool_key).into_iter().find(|(it, _)| is_ready(cluster, it));
    let sandbox = match warm {
        Some((sandbox, _)) => {
            let _ = cluster.store.update(&sandbox, |it| {
                it["metadata"]["ownerReferences"] = json!([owner(claim)]);
                it["metadata"]["labels"].as_object_mut().map(|it| it.remove(POOL));
                Ok(())
            });
            Some(sandbox.name)
        }
        None => make(cluster, &pool_key, &pool, &owner(claim), false),
    };
    let Some(sandbox) = sandbox else { return };
    let _ = cluster.store.update(key, |it| {
        it["status"]["sandbox"] = json!({ "name": sandbox });
        set_condition(it, "Ready", "True", "DependenciesReady", "");
        Ok(())
    });
}

/// A new Sandbox from the template of a pool.
fn make(cluster: &Cluster, pool_key: &Key, pool: &Value, owner: &Value, pooled: bool) -> Option<String> {
    let template = pool["spec"]["sandboxTemplateRef"]["name"].as_str().unwrap_or_default().to_owned();
    let template = Key { plural: "sandboxtemplates", namespace: pool_key.namespace.clone(), name: template };
    let template = cluster.store.get(&template)?;
    let name = format!("{}-{}", pool_key.name, &random_hex::<3>()[..5]);
    let labels = if pooled { json!({ POOL: pool_key.name }) } else { json!({}) };
    let mut sandbox = json!({
        "apiVersion": format!("{AGENTS}/v1beta1"), "kind": "Sandbox",
        "metadata": { "name": name, "namespace": pool_key.namespace, "labels": labels, "ownerReferences": [owner] },
        "spec": { "podTemplate": template["spec"]["podTemplate"] },
    });
    stamp(&mut sandbox);
    let key = Key { plural: "sandboxes", namespace: pool_key.namespace.clone(), name: name.clone() };
    cluster.store.create(&key, sandbox).ok().map(|_| name)
}

/// A Sandbox has a Pod of its name as long as it lives.
fn ensure_pod(cluster: &Arc<Cluster>, key: &Key, sandbox: &Value) {
    if cluster.store.get(&Key::pod(&key.namespace, &key.name)).is_some() {
        return;
    }
    let template = &sandbox["spec"]["podTemplate"];
    let body = json!({
        "metadata": { "name": key.name, "labels": template["metadata"]["labels"], "ownerReferences": [owner(sandbox)] },
        "spec": template["spec"],
    });
    let namespace = Some(key.namespace.clone());
    let target = Target { kind: &KINDS[0], namespace, name: None, subresource: None };
    let query = Query::default();
    let request = ObjectRequest { cluster, target: &target, query: &query, body, metadata_only: false };
    if let Err(refusal) = verbs::serve("POST", &request) {
        eprintln!("the Pod of the Sandbox `{}` is refused: {}", key.name, refusal.to_json());
    }
}

fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    })
}
