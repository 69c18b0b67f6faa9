//! A Kubernetes API server and a kubelet for tests. Pods are containers of one of Coracle's engines.
//!
//! It serves what a client of Pods needs: objects with lists, watches and patches, `exec` and `attach` over WebSocket, logs,
//! and a registry with the engine's images. A test lets nodes fail, requests be refused and streams be cut, and reads all
//! that was sent to the server.
#![expect(clippy::print_stderr, reason = "a test shows what its cluster complains about")]

mod admission;
mod audit;
mod backing;
mod cluster;
mod conditions;
mod control;
mod faults;
mod kinds;
mod kubelet;
mod log;
mod patch;
mod pod_plan;
mod quantity;
mod query;
mod registry;
mod runs;
mod sandboxes;
mod scheduler;
mod selector;
mod server;
mod status;
mod store;
mod stream;
mod validate;
mod verbs;
mod watch;

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::sync::oneshot;

pub use audit::AuditLine;
pub use backing::Backing;
pub use cluster::ClusterOptions;
pub use faults::{Fault, FaultRule};

use cluster::Cluster;
use store::Key;

/// A server that runs in a thread of its own, with all that belongs to its cluster. Both end when it is dropped.
#[derive(Debug)]
pub struct KubeApi {
    cluster: Arc<Cluster>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl KubeApi {
    /// Starts a server.
    ///
    /// # Errors
    /// When the machine has no port or no directory for it.
    pub fn start(options: ClusterOptions, backing: Backing) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("coracle-kube-api-").tempdir()?;
        let cluster = Cluster::new(options, backing, dir.path().to_owned());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").context("no port of the loopback")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&cluster);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = sandboxes::run(Arc::clone(&served)) => {}
                    ended = server::serve(Arc::clone(&served), listener) => {
                        if let Err(err) = ended {
                            eprintln!("the API server ended: {err}");
                        }
                    }
                    _ = stopped => {}
                }
            });
            // The kubelet's work must not continue during the removal.
            let rest = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.shutdown_timeout(std::time::Duration::from_secs(5));
            if let Ok(rest) = rest {
                rest.block_on(served.backing.remove_all());
            }
        });
        Ok(Self { cluster, address, stop: Some(stop), thread: Some(thread), _dir: dir })
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its registry, as images name it.
    #[must_use]
    pub fn registry(&self) -> String {
        self.address.to_string()
    }

    /// The token that it requires.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.cluster.token
    }

    /// A configuration for clients, whose context has that namespace.
    #[must_use]
    pub fn kubeconfig(&self, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "clusters": [{ "name": "fake", "cluster": { "server": self.url() } }],
            "users": [{ "name": "fake", "user": { "token": self.token() } }],
            "contexts": [{ "name": "fake", "context": { "cluster": "fake", "user": "fake", "namespace": namespace } }],
        })
    }

    /// All requests so far.
    #[must_use]
    pub fn audit(&self) -> Vec<AuditLine> {
        self.cluster.audit.lines()
    }

    /// All objects of a kind, by its plural.
    #[must_use]
    pub fn objects(&self, plural: &str) -> Vec<Value> {
        self.cluster.store.list(plural, None).objects.into_iter().map(|(_, it)| it).collect()
    }

    /// Injects a fault.
    pub fn fault(&self, rule: FaultRule) {
        self.cluster.faults.add(rule);
    }

    /// Makes a node unreachable. Its containers continue to run.
    pub fn lose_node(&self, name: &str) {
        scheduler::lose(&self.cluster, name);
    }

    /// Makes a node reachable again.
    pub fn return_node(&self, name: &str) {
        scheduler::bring_back(&self.cluster, name);
    }

    /// Limits the number of Pods of a namespace with a quota.
    pub fn limit_pods(&self, namespace: &str, pods: usize) {
        let key = Key { plural: "resourcequotas", namespace: namespace.to_owned(), name: "pods".into() };
        self.cluster.add("v1", "ResourceQuota", &key, json!({ "spec": { "hard": { "pods": pods.to_string() } } }));
    }

    /// From now on the registry requires this login of clients. Nodes need none.
    pub fn demand_login(&self, user: &str, password: &str) {
        // The first one stays.
        let _ = self.cluster.registry_login.set(registry::basic(user, password));
    }

    /// The kinds and the controller of agent-sandbox are installed.
    pub fn install_agent_sandbox(&self) {
        self.cluster.agent_sandbox.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Adds an object, which the server completes.
    ///
    /// # Panics
    /// For a kind that the server does not have.
    pub fn add(&self, plural: &str, namespace: &str, name: &str, object: Value) {
        let kind = kinds::KINDS.iter().find(|it| it.plural == plural).expect("the server has the kind");
        self.cluster.add(&kind.api_version(), kind.name, &Key::new(kind, namespace, name), object);
    }

    /// Removes an object, but not yet the objects that it owns, as if the garbage collector were late.
    ///
    /// # Panics
    /// For a kind that the server does not have.
    pub fn remove(&self, plural: &str, namespace: &str, name: &str) {
        let kind = kinds::KINDS.iter().find(|it| it.plural == plural).expect("the server has the kind");
        let _ = self.cluster.store.remove(&Key::new(kind, namespace, name));
    }

    /// A Pod is evicted.
    pub fn evict(&self, namespace: &str, pod: &str) {
        control::evict(&self.cluster, namespace, pod);
    }

    /// Drops past versions, so that watches and lists that continue from them have expired.
    pub fn forget_versions(&self) {
        self.cluster.store.forget();
    }
}

impl Drop for KubeApi {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.stop.take().map(|it| it.send(()));
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("the API server panicked");
        }
    }
}
