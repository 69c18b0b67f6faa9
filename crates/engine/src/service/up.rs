//! Starts a stack in the order of its dependencies, with health checks, until every service is ready or one has failed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coracle_runtime::stack_model::Service;
use coracle_runtime::{Container, Health, Image, StackUp};
use coracle_types::{ContainerStatus, Excerpt, ImageRef, Result};

use super::config::ServiceContainer;
use super::order::{Dependency, Readiness, ServiceProgress, dependencies, readiness};
use super::{health, labels, parts, refused};
use crate::container::{self, StoredContainer};
use crate::engine::Engine;

/// Time between two checks of the containers.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A program that still runs after this time counts as running. Compose does not check earlier, either.
const SETTLED: Duration = Duration::from_millis(500);

/// Starts a stack. If the time is over or a service failed, reports the services that are not ready.
///
/// # Errors
/// If the engine does not support something, or a service cannot be created.
pub(crate) async fn up(engine: &Arc<Engine>, stack: &StackUp) -> Result<Option<Excerpt>> {
    let mut coming = StackStart::new(engine, stack)?;
    parts::create(engine, stack).await?;
    let deadline = Instant::now() + stack.patience;
    loop {
        let progress = coming.inspect().await?;
        let mut never = Vec::new();
        let waiting = progress.iter().filter(|(_, it)| **it == ServiceProgress::Waiting).map(|(name, _)| name);
        for name in waiting {
            match readiness(&coming.needs[name], &progress) {
                Readiness::Ready => {
                    coming.start(name).await?;
                    coming.started.insert(name.clone(), Instant::now());
                }
                Readiness::Wait => {}
                Readiness::Never => never.push(name.clone()),
            }
        }
        let progress = coming.inspect().await?;
        match verdict(&progress, &never) {
            StackVerdict::Good => return Ok(None),
            StackVerdict::Bad(why) => return Ok(Some(Excerpt::from_bytes(why.as_bytes()))),
            StackVerdict::Unknown => {}
        }
        if Instant::now() >= deadline {
            let waiting = progress.iter().filter(|(_, it)| !is_good(**it)).map(|(name, _)| format!("`{name}`"));
            let text = format!("not ready in time: {}", waiting.collect::<Vec<_>>().join(", "));
            return Ok(Some(Excerpt::from_bytes(text.as_bytes())));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn is_good(progress: ServiceProgress) -> bool {
    matches!(
        progress,
        ServiceProgress::Running { health: None | Some(Health::Healthy), settled: true }
            | ServiceProgress::Ended { well: true }
    )
}

/// The state of a stack.
#[derive(Debug, PartialEq, Eq)]
enum StackVerdict {
    Good,
    /// A service has failed; with the reasons.
    Bad(String),
    /// Some services are not ready yet.
    Unknown,
}

fn verdict(progress: &BTreeMap<String, ServiceProgress>, never: &[String]) -> StackVerdict {
    let mut bad = Vec::new();
    for (name, it) in progress {
        match it {
            ServiceProgress::Ended { well: false } => bad.push(format!("service `{name}` ended with an error")),
            ServiceProgress::Running { health: Some(Health::Unhealthy), .. } => {
                bad.push(format!("service `{name}` is unhealthy"));
            }
            _ => {}
        }
    }
    bad.extend(never.iter().map(|it| format!("service `{it}` was not started: what it depends on failed")));
    // Others may still become ready, and the caller should see all failures, but not services that wait for a failed one.
    let undecided = |name: &String, it: ServiceProgress| match it {
        ServiceProgress::Waiting => !never.contains(name),
        ServiceProgress::Running { health, settled } => health == Some(Health::Starting) || !settled,
        ServiceProgress::Ended { .. } => false,
    };
    if progress.iter().any(|(name, it)| undecided(name, *it)) {
        return StackVerdict::Unknown;
    }
    if bad.is_empty() { StackVerdict::Good } else { StackVerdict::Bad(bad.join("; ")) }
}

/// A stack that is being started.
struct StackStart<'a> {
    engine: &'a Arc<Engine>,
    stack: &'a StackUp,
    images: BTreeMap<String, Image>,
    needs: BTreeMap<String, Vec<Dependency>>,
    /// Services that this call started, and when.
    started: BTreeMap<String, Instant>,
}

impl<'a> StackStart<'a> {
    /// Refuses an unsupported stack before anything is created.
    fn new(engine: &'a Arc<Engine>, stack: &'a StackUp) -> Result<Self> {
        let (images, needs, started) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut it = Self { engine, stack, images, needs, started };
        super::check(&stack.model)?;
        for (name, service) in &stack.model.services {
            it.images.insert(name.clone(), it.image(name, service)?);
            it.needs.insert(name.clone(), dependencies(service));
        }
        for name in it.needs.keys() {
            for number in 1..=it.scale(name) {
                it.service(name, number).config(engine)?;
            }
        }
        Ok(it)
    }

    fn image(&self, name: &str, service: &Service) -> Result<Image> {
        let text = service.image.as_deref().unwrap_or_default();
        let parsed = ImageRef::parse(text).map_err(|err| refused(&format!("service `{name}`: {err}")))?;
        let found = self.engine.store.find(&[parsed])?.into_iter().next();
        found.ok_or_else(|| refused(&format!("service `{name}`: no image `{text}` in this engine")))
    }

    fn scale(&self, name: &str) -> u64 {
        self.stack.model.services[name].scale.unwrap_or(1)
    }

    fn service<'s>(&'s self, name: &'s str, number: u64) -> ServiceContainer<'s> {
        ServiceContainer { stack: self.stack, name, number, image: &self.images[name] }
    }

    /// Creates and starts the containers of a service. An existing one with the same configuration stays.
    async fn start(&self, name: &str) -> Result<()> {
        for number in 1..=self.scale(name) {
            let service = self.service(name, number);
            let id = match self.existing(&service)? {
                Some(stored) if is_current(&stored, &service) => stored.config.id,
                existing => {
                    if let Some(stored) = existing {
                        container::remove(self.engine, &stored.config.id).await?;
                    }
                    self.create(&service).await?
                }
            };
            container::start(self.engine, &id).await?;
        }
        Ok(())
    }

    async fn create(&self, service: &ServiceContainer<'_>) -> Result<coracle_types::ContainerId> {
        let gone = || refused(&format!("service `{}`: its image was removed", service.name));
        let _hold = self.engine.store.hold(&service.image.id)?.ok_or_else(gone)?;
        let (config, mounts) = service.config(self.engine)?;
        for volume in &mounts.anonymous {
            parts::create_anonymous(self.engine, self.stack, volume)?;
        }
        let is_root = self.engine.privileges.is_root();
        // Written first, since the next call would take a container without them for an up-to-date one.
        let write_files = |dir: &Path| mounts.files.iter().try_for_each(|it| it.write(dir, is_root));
        container::add(self.engine, &config, write_files).await?;
        Ok(config.id)
    }

    fn existing(&self, service: &ServiceContainer<'_>) -> Result<Option<StoredContainer>> {
        let mine = container::list(self.engine, &labels::of_project(&self.stack.project))?;
        let name = service.container_name()?;
        Ok(mine.into_iter().find(|it| it.config.name == name))
    }

    /// Runs the due health checks, and returns the progress of the services.
    async fn inspect(&self) -> Result<BTreeMap<String, ServiceProgress>> {
        let mut progress: BTreeMap<String, ServiceProgress> = BTreeMap::new();
        let mine = container::list(self.engine, &labels::of_project(&self.stack.project))?;
        for name in self.needs.keys().filter(|it| self.scale(it) > 0) {
            let mut containers = Vec::new();
            for number in 1..=self.scale(name) {
                let service = self.service(name, number);
                let wanted = service.container_name()?;
                let found = mine.iter().find(|it| it.config.name == wanted && is_current(it, &service));
                containers.push(match found {
                    Some(stored) => Some(self.checked(stored).await?),
                    None => None,
                });
            }
            progress.insert(name.clone(), progress_of(&containers, self.started.get(name).map(Instant::elapsed)));
        }
        Ok(progress)
    }

    async fn checked(&self, stored: &StoredContainer) -> Result<Container> {
        let check = stored.config.service.as_ref().and_then(|it| it.health.as_ref());
        let record = container::health_record(stored)?;
        if let (Some(check), Some((record, now_ms))) = (check, record)
            && health::is_due(&record, check, now_ms)
        {
            health::run(self.engine, &stored.config.id).await?;
        }
        container::describe(self.engine, stored)
    }
}

fn is_current(stored: &StoredContainer, service: &ServiceContainer<'_>) -> bool {
    stored.config.labels.get(labels::FINGERPRINT) == Some(&service.fingerprint())
}

/// Computes the progress of a service from its containers and the time since this call started it. A container that ended
/// before that is started again.
fn progress_of(containers: &[Option<Container>], since: Option<Duration>) -> ServiceProgress {
    let mut health = None;
    let (mut running, mut well) = (false, true);
    for container in containers {
        let Some(container) = container else { return ServiceProgress::Waiting };
        match container.status {
            ContainerStatus::Created => return ServiceProgress::Waiting,
            ContainerStatus::Exited | ContainerStatus::Dead if since.is_none() => return ServiceProgress::Waiting,
            ContainerStatus::Exited | ContainerStatus::Dead => well &= container.exit_code == Some(0),
            _ => {
                running = true;
                health = worse(health, container.health);
            }
        }
    }
    let settled = since.is_none_or(|it| it >= SETTLED);
    if running && well { ServiceProgress::Running { health, settled } } else { ServiceProgress::Ended { well } }
}

fn worse(one: Option<Health>, other: Option<Health>) -> Option<Health> {
    let rank = |it: &Option<Health>| match it {
        None => 0,
        Some(Health::Healthy) => 1,
        Some(Health::Starting) => 2,
        Some(Health::Unhealthy) => 3,
    };
    if rank(&one) >= rank(&other) { one } else { other }
}
