//! The shared state of the cluster.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use coracle_types::random_hex;
use serde_json::{Value, json};

use crate::audit::Audit;
use crate::backing::Backing;
use crate::faults::Faults;
use crate::runs::PodRun;
use crate::status::Refusal;
use crate::store::{Key, Store};

/// Settings of a cluster, and delays of its parts.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Names of its nodes.
    pub nodes: Vec<String>,
    /// Cores and bytes of each node.
    pub node_cpus: u64,
    /// Memory of each node, in bytes.
    pub node_memory: u64,
    /// Namespaces, beside `default`.
    pub namespaces: Vec<String>,
    /// Until a Pod has a node.
    pub schedule: Duration,
    /// Between the steps of a kubelet.
    pub step: Duration,
    /// From the end of a Pod's containers until the object is gone.
    pub finalize: Duration,
    /// Whether exec knows the protocol of 1.30, in which a stream can be closed.
    pub closes_streams: bool,
    /// Whether Pods have a network, if no policy denies it.
    pub network: bool,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            nodes: vec!["node-1".into(), "node-2".into()],
            node_cpus: 64,
            node_memory: 64 << 30,
            namespaces: vec!["coracle".into()],
            schedule: Duration::from_millis(5),
            step: Duration::from_millis(5),
            finalize: Duration::from_millis(50),
            closes_streams: true,
            network: true,
        }
    }
}

/// All of a cluster.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) options: ClusterOptions,
    pub(crate) store: Store,
    pub(crate) faults: Faults,
    pub(crate) audit: Audit,
    pub(crate) backing: Backing,
    /// The running parts of each Pod, by its UID.
    pub(crate) runs: Mutex<BTreeMap<String, Arc<PodRun>>>,
    /// Counts a quota and creates the admitted object in one step.
    pub(crate) admission: Mutex<()>,
    /// The header that its registry requires, if it requires a login.
    pub(crate) registry_login: OnceLock<String>,
    /// Whether the kinds of agent-sandbox are installed.
    pub(crate) agent_sandbox: AtomicBool,
    pub(crate) token: String,
    /// Directory of the volumes.
    pub(crate) dir: PathBuf,
}

impl Cluster {
    pub(crate) fn new(options: ClusterOptions, backing: Backing, dir: PathBuf) -> Arc<Self> {
        let cluster = Arc::new(Self {
            options,
            store: Store::default(),
            faults: Faults::default(),
            audit: Audit::default(),
            backing,
            runs: Mutex::default(),
            admission: Mutex::default(),
            registry_login: OnceLock::new(),
            agent_sandbox: AtomicBool::new(false),
            token: random_hex::<16>(),
            dir,
        });
        cluster.fill();
        cluster
    }

    pub(crate) fn has_agent_sandbox(&self) -> bool {
        self.agent_sandbox.load(Ordering::Relaxed)
    }

    /// Objects of a new cluster.
    fn fill(&self) {
        let namespaces = ["default", "kube-system"].into_iter().map(str::to_owned);
        for name in namespaces.chain(self.options.namespaces.clone()) {
            let namespace = json!({ "status": { "phase": "Active" } });
            let key = Key { plural: "namespaces", namespace: String::new(), name: name.clone() };
            self.add("v1", "Namespace", &key, namespace);
            let account = Key { plural: "serviceaccounts", namespace: name, name: "default".into() };
            self.add("v1", "ServiceAccount", &account, json!({}));
        }
        for name in &self.options.nodes {
            self.add("v1", "Node", &Key::node(name), self.node());
        }
        let class = Key { plural: "storageclasses", namespace: String::new(), name: "standard".into() };
        let standard = json!({
            "provisioner": "example.com/fake",
            "metadata": { "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        });
        self.add("storage.k8s.io/v1", "StorageClass", &class, standard);
    }

    fn node(&self) -> Value {
        let capacity = json!({
            "cpu": self.options.node_cpus.to_string(), "memory": self.options.node_memory.to_string(), "pods": "110",
        });
        json!({
            "spec": {},
            "status": {
                "capacity": capacity, "allocatable": capacity,
                "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
                "nodeInfo": { "kubeletVersion": "v1.33.0", "architecture": arch(), "operatingSystem": "linux" },
            },
        })
    }

    /// Adds an object that is not there yet.
    pub(crate) fn add(&self, version: &str, kind: &str, key: &Key, mut object: Value) {
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(key.name);
        if !key.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(key.namespace);
        }
        stamp(&mut object);
        // One that is there stays.
        let _ = self.store.create(key, object);
    }

    pub(crate) fn run_of(&self, uid: &str) -> Option<Arc<PodRun>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).get(uid).cloned()
    }

    /// Records an event of a Pod.
    pub(crate) fn event(&self, pod: &Value, reason: &str, message: &str) {
        let meta = &pod["metadata"];
        let (name, namespace) =
            (meta["name"].as_str().unwrap_or_default(), meta["namespace"].as_str().unwrap_or_default());
        let own = format!("{name}.{}", random_hex::<8>());
        let kind = if ["Failed", "FailedScheduling", "BackOff", "Evicted", "NodeNotReady"].contains(&reason) {
            "Warning"
        } else {
            "Normal"
        };
        let mut event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": own, "namespace": namespace },
            "involvedObject": { "kind": "Pod", "name": name, "namespace": namespace, "uid": meta["uid"] },
            "reason": reason, "message": message, "type": kind, "count": 1, "lastTimestamp": now(),
        });
        stamp(&mut event);
        let key = Key { plural: "events", namespace: namespace.to_owned(), name: own };
        let _ = self.store.create(&key, event);
    }

    /// Sets the status of a Pod, unless it was replaced.
    pub(crate) fn set_status(&self, key: &Key, uid: &str, change: impl FnOnce(&mut Value)) -> Option<Value> {
        let changed = self.store.update(key, |pod| {
            if pod["metadata"]["uid"] != uid {
                return Err(Refusal::not_found("pods", &key.name));
            }
            change(pod);
            Ok(())
        });
        changed.ok()
    }

    /// Removes an object and the objects that it owns.
    pub(crate) fn collect(self: &Arc<Self>, key: &Key) {
        let Some(removed) = self.store.remove(key) else { return };
        let Some(uid) = removed["metadata"]["uid"].as_str() else { return };
        for owned in self.store.owned_by(uid) {
            let Some(object) = self.store.get(&owned) else { continue };
            let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let alive = owners.filter_map(|it| it["uid"].as_str()).any(|it| self.store.has_uid(it));
            if alive {
                continue;
            }
            if owned.plural == "pods" && object["spec"]["nodeName"].is_string() {
                let _ = self.store.update(&owned, |pod| {
                    mark_deleted(pod, 30);
                    Ok(())
                });
            } else {
                self.collect(&owned);
            }
        }
    }
}

/// Marks an object for deletion.
pub(crate) fn mark_deleted(object: &mut Value, grace: i64) {
    let meta = &mut object["metadata"];
    let shorter = meta["deletionGracePeriodSeconds"].as_i64().is_none_or(|it| grace < it);
    if meta["deletionTimestamp"].is_null() || shorter {
        let until = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(grace);
        meta["deletionTimestamp"] = json!(time(until));
        meta["deletionGracePeriodSeconds"] = json!(grace);
    }
}

/// Sets the server's fields of a new object.
pub(crate) fn stamp(object: &mut Value) {
    let uid = random_hex::<16>();
    let parts = [&uid[..8], &uid[8..12], &uid[12..16], &uid[16..20], &uid[20..]];
    let meta = &mut object["metadata"];
    meta["uid"] = json!(parts.join("-"));
    meta["creationTimestamp"] = json!(now());
}

pub(crate) fn now() -> String {
    time(jiff::Timestamp::now())
}

/// Times of the API have no fractions of a second.
fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn arch() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}
