//! The engine that runs the containers of Pods.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::stack_model::StackModel;
use coracle_runtime::{
    Container, ContainerRuntime, CreateSpec, Image, LabelFilter, NetworkAttachment, NetworkCreate, Policy, StackUp,
    admit,
};
use coracle_types::{
    ContainerId, ContainerName, EngineKind, Exec, ExecOutput, Handle, Ids, ImageRef, NetworkName, ProjectName,
};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// A label of all containers: its value is the cluster.
const CLUSTER: &str = "coracle-kube-api.cluster";

/// A label of all containers: the UID of their Pod.
const POD: &str = "coracle-kube-api.pod";

/// Where the engine reads the exit code of PID 1.
const EXIT_DESCRIPTOR: &str = "--exit-fd=3";

/// An engine, as a kubelet uses it.
#[derive(Clone, Debug)]
pub struct Backing {
    /// Runs commands beneath a minimal init, which reports their exit codes.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// The same engine, with the command itself as PID 1.
    pub bare: Arc<dyn ContainerRuntime>,
    /// The name of this cluster in the engine.
    pub cluster: String,
    network: Arc<OnceCell<Option<String>>>,
}

/// A container of a Pod that is to be.
#[derive(Clone, Debug)]
pub(crate) struct ContainerPlan {
    /// UID of the Pod.
    pub(crate) pod: String,
    /// Its number in the Pod.
    pub(crate) number: usize,
    pub(crate) image: Image,
    pub(crate) command: Vec<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) user: Option<Ids>,
    pub(crate) workdir: Option<String>,
    pub(crate) volumes: Vec<PlannedVolume>,
    pub(crate) read_only: bool,
    pub(crate) memory: Option<u64>,
    pub(crate) cpus: Option<f64>,
    pub(crate) capabilities: Vec<String>,
    pub(crate) hosts: Vec<String>,
    pub(crate) hostname: String,
    /// Names on the network; `None` without one.
    pub(crate) network: Option<Vec<String>>,
}

/// A volume at a path of a container.
#[derive(Clone, Debug)]
pub(crate) enum PlannedVolume {
    Directory { source: PathBuf, target: String, writable: bool },
    Memory { target: String, bytes: Option<u64> },
}

impl PlannedVolume {
    fn target(&self) -> &str {
        let (Self::Directory { target, .. } | Self::Memory { target, .. }) = self;
        target
    }
}

impl Backing {
    /// An engine for one cluster.
    #[must_use]
    pub fn new(runtime: Arc<dyn ContainerRuntime>, bare: Arc<dyn ContainerRuntime>) -> Self {
        let cluster = format!("kube-{}", coracle_types::random_hex::<4>());
        Self { runtime, bare, cluster, network: Arc::default() }
    }

    /// Creates a container and starts it.
    pub(crate) async fn start(&self, plan: &ContainerPlan) -> Result<Container, String> {
        let name = format!("{}-{}-c{}", self.cluster, plan.pod, plan.number);
        if self.runtime.kind() == EngineKind::Fake {
            return self.start_fake(&name, plan).await.map_err(|err| err.to_string());
        }
        let project = ProjectName::parse(&name).map_err(|err| err.to_string())?;
        let model = self.model(plan).await?;
        // Nothing waits for it: a failure is noticed later.
        let stack = StackUp { project, model, dir: "/".into(), patience: Duration::ZERO, build: false };
        let is_bare = plan.volumes.iter().any(|it| it.target().starts_with("/.coracle"));
        let runtime = if is_bare { &self.bare } else { &self.runtime };
        runtime.stack_up(&stack).await.map_err(|err| err.to_string())?;
        self.find(&format!("{name}-main-1")).await
    }

    async fn find(&self, name: &str) -> Result<Container, String> {
        let handle = Handle::parse(name).map_err(|err| err.to_string())?;
        self.runtime.inspect(&handle).await.map_err(|err| err.to_string())
    }

    async fn start_fake(&self, name: &str, plan: &ContainerPlan) -> coracle_types::Result<Container> {
        let labels = self.labels(&plan.pod);
        let invalid = |detail: String| coracle_types::Error::Unreadable { verb: "create", detail };
        let name = ContainerName::parse(name).map_err(|err| invalid(err.to_string()))?;
        let image = ImageRef::parse(image_name(&plan.image)).map_err(|err| invalid(err.to_string()))?;
        let spec = CreateSpec { labels, ..CreateSpec::new(name, image) };
        let admitted = admit(spec, &Policy::everything()).map_err(|err| invalid(format!("{err:?}")))?;
        let id = self.runtime.create(&admitted.with_image(plan.image.id.clone(), NetworkAttachment::None)).await?;
        self.runtime.start(&id).await?;
        self.runtime.inspect(&(&id).into()).await
    }

    fn labels(&self, pod: &str) -> BTreeMap<String, String> {
        [(CLUSTER.to_owned(), self.cluster.clone()), (POD.to_owned(), pod.to_owned())].into()
    }

    /// The container as a service of a stack, which is the way to a command of one's own.
    async fn model(&self, plan: &ContainerPlan) -> Result<StackModel, String> {
        let mut command = plan.command.clone();
        // Also behind a shell that prepares something.
        if command.windows(2).any(|it| it[0].ends_with("/guest") && it[1] == "init") {
            command.push(EXIT_DESCRIPTOR.to_owned());
        }
        let volumes: Vec<Value> = plan.volumes.iter().map(volume).collect();
        let mut service = json!({
            "image": image_name(&plan.image), "entrypoint": command, "command": plan.args, "environment": plan.env,
            "volumes": volumes, "read_only": plan.read_only, "cap_add": plan.capabilities, "extra_hosts": plan.hosts,
            "hostname": plan.hostname, "labels": self.labels(&plan.pod),
        });
        let optional = [
            ("user", plan.user.map(|it| json!(format!("{}:{}", it.uid, it.gid)))),
            ("working_dir", plan.workdir.as_ref().map(|it| json!(it))),
            ("mem_limit", plan.memory.map(|it| json!(it))),
            ("cpus", plan.cpus.map(|it| json!(it))),
        ];
        for (key, value) in optional.into_iter().filter_map(|(key, it)| Some((key, it?))) {
            service[key] = value;
        }
        let network = match &plan.network {
            Some(aliases) => self.network().await.map(|name| (name, aliases)),
            None => None,
        };
        let mut networks = json!({});
        match network {
            Some((name, aliases)) => {
                service["networks"] = json!({ "pods": { "aliases": aliases } });
                networks = json!({ "pods": { "name": name, "external": true } });
            }
            None => service["network_mode"] = json!("none"),
        }
        let model = json!({ "services": { "main": service }, "networks": networks });
        serde_json::from_value(model).map_err(|err| err.to_string())
    }

    /// The network of all Pods, created for the first that needs it; `None` if the engine has no networks.
    async fn network(&self) -> Option<String> {
        let made = self.network.get_or_init(|| async {
            let name = NetworkName::parse(&self.cluster).ok()?;
            let labels = vec![(CLUSTER.to_owned(), self.cluster.clone())];
            let network = NetworkCreate { name, labels, reach: true, internal: false };
            self.runtime.create_network(&network).await.ok().map(|it| it.name)
        });
        made.await.clone()
    }

    pub(crate) async fn inspect(&self, id: &ContainerId) -> Option<Container> {
        self.runtime.inspect(&id.into()).await.ok()
    }

    pub(crate) async fn exec(&self, id: &ContainerId, exec: Exec) -> coracle_types::Result<ExecOutput> {
        self.runtime.exec(id, exec).await
    }

    pub(crate) async fn stop(&self, id: &ContainerId, grace: Duration) {
        if let Err(err) = self.runtime.stop(id, grace).await {
            eprintln!("kubelet: a container could not be stopped: {err}");
        }
    }

    /// Removes the containers of a Pod.
    pub(crate) async fn remove_pod(&self, uid: &str) {
        self.remove(&LabelFilter(self.labels(uid).into_iter().map(|(name, value)| (name, Some(value))).collect()))
            .await;
    }

    /// Removes all that this cluster has.
    pub(crate) async fn remove_all(&self) {
        let mine = LabelFilter(vec![(CLUSTER.to_owned(), Some(self.cluster.clone()))]);
        self.remove(&mine).await;
        for network in self.runtime.list_networks(&mine).await.unwrap_or_default() {
            if let Err(err) = self.runtime.remove_network(&network.id).await {
                eprintln!("kubelet: a network could not be removed: {err}");
            }
        }
    }

    async fn remove(&self, filter: &LabelFilter) {
        for container in self.runtime.list(filter).await.unwrap_or_default() {
            if let Err(err) = self.runtime.remove(&container.id).await {
                eprintln!("kubelet: a container could not be removed: {err}");
            }
        }
    }

    /// All images of the engine.
    pub(crate) async fn images(&self) -> Vec<Image> {
        self.runtime.list_images(&LabelFilter::default()).await.unwrap_or_default()
    }
}

fn image_name(image: &Image) -> String {
    image.tags.first().cloned().unwrap_or_else(|| image.id.to_string())
}

fn volume(it: &PlannedVolume) -> Value {
    match it {
        PlannedVolume::Directory { source, target, writable } => {
            json!({ "type": "bind", "source": source, "target": target, "read_only": !writable })
        }
        PlannedVolume::Memory { target, bytes } => {
            json!({ "type": "tmpfs", "target": target, "tmpfs": { "size": bytes, "mode": 0o777 } })
        }
    }
}
