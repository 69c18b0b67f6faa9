//! Stacks of the fake engine: services whose command sets how they end.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_types::{ContainerId, ContainerStatus, Excerpt, ImageRef, ProjectName, Result};

use super::containers::FakeContainer;
use super::files::ContainerFiles;
use super::{EngineState, FakeRuntime, Verb, now, off_thread, random_id, refused};
use crate::stack_model::{Port as PublishedPort, Service, StackModel};
use crate::{Container, Health, Limits, Network, Port, StackUp, Stacks, Volume};

/// Compose's label for the project.
const PROJECT: &str = "com.docker.compose.project";

/// Compose's label for the service.
const SERVICE: &str = "com.docker.compose.service";

#[async_trait]
impl Stacks for FakeRuntime {
    async fn compose_version(&self) -> Option<String> {
        Some("2.26.1".into())
    }

    async fn check_stack(&self, _: &StackModel) -> Result<()> {
        Ok(())
    }

    async fn stack_up(&self, stack: &StackUp) -> Result<Option<Excerpt>> {
        self.enter(Verb::StackUp).await?;
        self.with(|state| state.make_around(stack));
        for (name, service) in &stack.model.services {
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
        let project = &stack.project;
        let labels = |of_file: &BTreeMap<String, String>| {
            let mut labels = of_file.clone();
            labels.insert(PROJECT.into(), project.to_string());
            labels
        };
        for (name, network) in &stack.model.networks {
            self.networks.push(Network {
                id: random_id(),
                name: network.engine_name(project, name),
                labels: labels(&network.labels),
                internal: network.internal,
                gateways: super::networks::gateways(),
                subnets: super::networks::subnets(),
            });
        }
        for (name, volume) in &stack.model.volumes {
            let name = volume.engine_name(project, name);
            self.volumes.push(Volume { name, labels: labels(&volume.labels), created: now() });
        }
    }

    fn make_service(
        &mut self,
        project: &ProjectName,
        name: &str,
        service: &Service,
        files: Arc<ContainerFiles>,
    ) -> Result<()> {
        let named = service.image.as_deref().unwrap_or_default();
        let image = ImageRef::parse(named).ok().and_then(|it| self.image(&it));
        let image = image.cloned().ok_or_else(|| refused(Verb::StackUp, format!("no image {named}")))?;
        let id = ContainerId::parse(random_id()).expect("64 hex digits are an id");
        let mut labels = image.labels.clone();
        labels.extend(service.labels.clone());
        labels.insert(PROJECT.into(), project.to_string());
        labels.insert(SERVICE.into(), name.to_owned());
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
            user: service.user.clone().unwrap_or_default(),
            workdir: String::new(),
            env: service.environment.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            ports: Vec::new(),
            mounts: Vec::new(),
            networks: service.networks.keys().map(|it| format!("{project}_{it}")).collect(),
            limits: Limits::default(),
            execs: 0,
            health: service.healthcheck.is_some().then_some(Health::Healthy),
            lifetime_over: None,
            isolation: None,
        };
        let port = |it: &PublishedPort| Port { container: it.target, host: it.published, protocol: it.protocol };
        let ports = service.ports.iter().map(port).collect();
        let mut machine = FakeContainer::service(seen, files, ports);
        machine.start_service(service.command.as_deref().unwrap_or_default())?;
        self.containers.insert(id, machine);
        Ok(())
    }
}
