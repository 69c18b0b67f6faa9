//! Stacks of the fake engine: a Compose that reads JSON, and services whose command sets how they end.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::containers::FakeContainer;
use super::files::ContainerFiles;
use super::model::{normalised, port};
use super::{EngineState, FakeRuntime, Verb, now, off_thread, random_id, refused};
use crate::{
    Container, ContainerId, ContainerStatus, Excerpt, Health, ImageRef, Limits, Network, Port, ProjectName, Result,
    StackSource, StackUp, Stacks, Volume,
};

/// Compose's label for the project.
const PROJECT: &str = "com.docker.compose.project";

/// Compose's label for the service.
const SERVICE: &str = "com.docker.compose.service";

#[async_trait]
impl Stacks for FakeRuntime {
    async fn compose_version(&self) -> Option<String> {
        Some("2.26.1".into())
    }

    async fn stack_model(&self, source: &StackSource) -> Result<Value> {
        self.enter(Verb::ReadStack).await?;
        let read: Value = serde_json::from_str(&source.content)
            .map_err(|err| refused(Verb::ReadStack, format!("the fake engine reads JSON: {err}")))?;
        normalised(read, source).map_err(|why| refused(Verb::ReadStack, why))
    }

    async fn stack_up(&self, stack: &StackUp) -> Result<Option<Excerpt>> {
        self.enter(Verb::StackUp).await?;
        let services = stack.model["services"].as_object().cloned().unwrap_or_default();
        self.with(|state| state.make_around(stack));
        for (name, service) in &services {
            let files = Arc::new(off_thread(move || ContainerFiles::create(None, Vec::new(), &[], &[])).await?);
            self.with(|state| state.make_service(&stack.project, name, service, files))?;
        }
        Ok(None)
    }

    async fn stack_down(&self, project: &ProjectName) -> Result<()> {
        self.enter(Verb::StackDown).await?;
        self.with(|state| {
            for id in state.services(project) {
                state.remove(&id);
            }
            let other = |labels: &BTreeMap<String, String>| labels.get(PROJECT).is_none_or(|it| it != project.as_str());
            state.networks.retain(|it| other(&it.labels));
            state.volumes.retain(|it| other(&it.labels));
        });
        Ok(())
    }

    async fn logs(&self, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>> {
        self.enter(Verb::Logs).await?;
        let log = self.with(|state| state.machine(id).map(|it| it.log.clone()))?;
        Ok(log.as_bytes()[log.len().saturating_sub(max_bytes)..].to_vec())
    }

    async fn check_health(&self, id: &ContainerId) -> Result<Option<Health>> {
        self.enter(Verb::CheckHealth).await?;
        self.with(|state| Ok(state.machine(id)?.seen.health))
    }
}

impl EngineState {
    fn services(&self, project: &ProjectName) -> Vec<ContainerId> {
        let seen = self.containers.values().map(|it| &it.seen);
        let mine = seen.filter(|it| it.labels.get(PROJECT).is_some_and(|it| it == project.as_str()));
        mine.map(|it| it.id.clone()).collect()
    }

    /// Its networks and volumes.
    fn make_around(&mut self, stack: &StackUp) {
        let parts = |kind: &str| stack.model[kind].as_object().cloned().unwrap_or_default();
        for (name, network) in parts("networks") {
            let (name, labels) = around(&stack.project, &name, &network);
            let internal = network["internal"].as_bool().unwrap_or(false);
            let (gateways, subnets) = (super::networks::gateways(), super::networks::subnets());
            self.networks.push(Network { id: random_id(), name, labels, internal, gateways, subnets });
        }
        for (name, volume) in parts("volumes") {
            let (name, labels) = around(&stack.project, &name, &volume);
            self.volumes.push(Volume { name, labels, created: now() });
        }
    }

    fn make_service(
        &mut self,
        project: &ProjectName,
        name: &str,
        service: &Value,
        files: Arc<ContainerFiles>,
    ) -> Result<()> {
        let named = service["image"].as_str().unwrap_or_default();
        let image = ImageRef::parse(named).ok().and_then(|it| self.image(&it));
        let image = image.cloned().ok_or_else(|| refused(Verb::StackUp, format!("no image {named}")))?;
        let id = ContainerId::parse(random_id()).expect("64 hex digits are an id");
        let mut labels = image.labels.clone();
        labels.extend(texts(&service["labels"]));
        labels.insert(PROJECT.into(), project.to_string());
        labels.insert(SERVICE.into(), name.to_owned());
        let networks = service["networks"].as_object().cloned().unwrap_or_else(Map::new);
        let seen = Container {
            id: id.clone(),
            name: format!("{project}-{name}-1"),
            image: image.id.clone(),
            status: ContainerStatus::Created,
            pid: None,
            exit_code: None,
            oom_killed: false,
            created: now(),
            started_at: None,
            labels,
            user: service["user"].as_str().unwrap_or_default().to_owned(),
            workdir: String::new(),
            env: texts(&service["environment"]).into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
            ports: Vec::new(),
            mounts: Vec::new(),
            networks: networks.keys().map(|it| format!("{project}_{it}")).collect(),
            limits: Limits::default(),
            execs: 0,
            health: service["healthcheck"].is_object().then_some(Health::Healthy),
            lifetime_over: None,
            isolation: None,
        };
        let ports: Vec<Port> = service["ports"].as_array().into_iter().flatten().filter_map(port).collect();
        let mut machine = FakeContainer::service(seen, files, ports);
        machine.start_service(&command(service))?;
        self.containers.insert(id, machine);
        Ok(())
    }
}

/// Its full name in the engine's words, and its labels.
fn around(project: &ProjectName, name: &str, part: &Value) -> (String, BTreeMap<String, String>) {
    let mut labels = texts(&part["labels"]);
    labels.insert(PROJECT.into(), project.to_string());
    let given = part["name"].as_str().map(str::to_owned);
    (given.unwrap_or_else(|| format!("{project}_{name}")), labels)
}

fn texts(fields: &Value) -> BTreeMap<String, String> {
    let text = |it: &Value| it.as_str().map_or_else(|| it.to_string(), str::to_owned);
    fields.as_object().into_iter().flatten().map(|(name, it)| (name.clone(), text(it))).collect()
}

fn command(service: &Value) -> Vec<String> {
    let words = service.get("command").cloned().unwrap_or_else(|| json!([]));
    words.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}
