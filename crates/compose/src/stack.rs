//! Stacks: claimed, brought up, inspected, taken down.

mod health_schedule;
mod service;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use coracle_runtime::{Container, ContainerRuntime, Health, LabelFilter, StackUp};
use coracle_types::{ContainerStatus, Error, Excerpt, Handle, ImageRef, ProjectName};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use self::health_schedule::HealthChecks;
pub use self::service::Service;
use crate::AdmittedStack;

/// Bytes of a failed service's log in an error.
const LOG_BYTES: usize = 2048;

/// Time between two inspections of services that are not ready.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Compose's label on everything that it creates.
const PROJECT: &str = "com.docker.compose.project";

/// Compose's label on the containers of a service.
const SERVICE: &str = "com.docker.compose.service";

/// The owner of a project name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nothing has it.
    Free,
    /// Everything that has it is ours.
    Ours,
    /// Something that is not ours has it.
    Foreign,
}

/// A service that is not ready, with its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadService {
    /// The service.
    pub service: String,
    /// Its state; none when it has no container.
    pub state: Option<ContainerStatus>,
    /// What its health check says.
    pub health: Option<Health>,
    /// Exit code of its PID 1.
    pub exit_code: Option<i64>,
    /// The last of what it printed, at most 2 KiB, control characters escaped.
    pub log: String,
}

/// Why a stack did not come up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// Services are not ready: one failed, or the time is over.
    #[error("{}", message(.bad))]
    Bad {
        /// Those services.
        bad: Vec<BadService>,
        /// Compose's error, if it gave up.
        #[source]
        cause: Option<Box<Error>>,
    },
    /// Compose or the engine failed, while no service is known to be bad.
    #[error(transparent)]
    Engine(#[from] Error),
}

fn message(bad: &[BadService]) -> String {
    let one = |it: &BadService| {
        let name = &it.service;
        match (it.state, it.exit_code, it.health) {
            (None, ..) => format!("`{name}` was not started"),
            (Some(ContainerStatus::Exited | ContainerStatus::Dead), Some(code), _) => {
                format!("`{name}` ended with {code}")
            }
            (Some(_), _, Some(health)) => format!("`{name}` is {}", word(health)),
            (Some(state), ..) => format!("`{name}` is {state}"),
        }
    };
    format!("the stack did not come up: {}", bad.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn word(health: Health) -> &'static str {
    match health {
        Health::Starting => "not healthy yet",
        Health::Healthy => "healthy",
        Health::Unhealthy => "unhealthy",
    }
}

/// How a stack is brought up.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// The directory that relative paths start from.
    pub dir: PathBuf,
    /// The time in which all services have to be ready (`compose.timeout`).
    pub patience: Duration,
    /// The engine runs no health checks by itself, as Podman.
    pub checks_on_demand: bool,
}

/// Finds the owner of a project name: from the labels of containers, networks and volumes, and from networks and volumes
/// with the names that Compose would use.
///
/// # Errors
/// Those of the engine.
pub async fn claim(
    runtime: &dyn ContainerRuntime,
    project: &ProjectName,
    is_ours: impl Fn(&BTreeMap<String, String>) -> bool + Send + Sync,
) -> Result<Claim, Error> {
    let mut holders: Vec<BTreeMap<String, String>> = Vec::new();
    holders.extend(runtime.list(&of_project(project)).await?.into_iter().map(|it| it.labels));
    let prefix = format!("{project}_");
    let holds = |name: &str, labels: &BTreeMap<String, String>| {
        labels.get(PROJECT).map_or_else(|| name.starts_with(&prefix), |it| it == project.as_str())
    };
    let networks = runtime.list_networks(&LabelFilter::default()).await?;
    holders.extend(networks.into_iter().filter(|it| holds(&it.name, &it.labels)).map(|it| it.labels));
    let volumes = runtime.list_volumes(&LabelFilter::default()).await?;
    holders.extend(volumes.into_iter().filter(|it| holds(&it.name, &it.labels)).map(|it| it.labels));
    Ok(match holders.as_slice() {
        [] => Claim::Free,
        all if all.iter().all(is_ours) => Claim::Ours,
        _ => Claim::Foreign,
    })
}

/// Brings a stack up and waits until every service is good: healthy, running without a health check, or ended with 0.
/// One that ended with anything else ends the wait. What was made stays: the caller takes it [`down`].
///
/// # Errors
/// [`StackError`].
pub async fn up(
    runtime: &dyn ContainerRuntime,
    stack: &AdmittedStack,
    how: &UpOptions,
) -> Result<Vec<Service>, StackError> {
    let give_up = Instant::now() + how.patience;
    let mut checks = HealthChecks::new(stack, how.checks_on_demand);
    let (said, cause) = match started(runtime, stack, how, &mut checks).await {
        Ok(ComposeEnd::Done(said)) => (said, None),
        Ok(ComposeEnd::Hopeless(seen)) => return Err(failure(runtime, stack, &seen, None).await),
        Err(err) => (None, Some(err)),
    };
    loop {
        let seen = services(runtime, stack.project()).await?;
        let bad = not_good(stack, &seen);
        if bad.is_empty() && cause.is_none() {
            unchanged(runtime, stack, &seen).await?;
            return Ok(seen);
        }
        let hopeless = bad.iter().any(|name| seen.iter().any(|it| it.service == *name && has_failed(it)));
        // A service that Compose gave up on stays stopped.
        let given_up =
            said.is_some() && bad.iter().any(|name| !seen.iter().any(|it| it.service == *name && started_once(it)));
        if cause.is_some() || hopeless || given_up || Instant::now() >= give_up {
            let cause = cause.or(said.filter(|_| given_up).map(compose_failed));
            return Err(failure(runtime, stack, &seen, cause).await);
        }
        checks.run_due(runtime, &seen).await;
        sleep(LOOK_AGAIN).await;
    }
}

/// How a run of Compose ended.
enum ComposeEnd {
    /// By itself, with what it said if it failed.
    Done(Option<Excerpt>),
    /// A service failed meanwhile; the services at that moment. Compose, once it is ended, may end others, too.
    Hopeless(Vec<Service>),
}

/// Runs Compose, and meanwhile the health checks that the engine does not run. A failed service ends it: Compose might
/// wait for others that wait for that one.
async fn started(
    runtime: &dyn ContainerRuntime,
    stack: &AdmittedStack,
    how: &UpOptions,
    checks: &mut HealthChecks,
) -> Result<ComposeEnd, Error> {
    let up = StackUp {
        project: stack.project().clone(),
        model: stack.model().clone(),
        dir: how.dir.clone(),
        patience: how.patience,
        build: stack.builds(),
    };
    let mut coming = runtime.stack_up(&up);
    if !how.checks_on_demand {
        return Ok(ComposeEnd::Done(coming.await?));
    }
    loop {
        tokio::select! {
            done = &mut coming => return Ok(ComposeEnd::Done(done?)),
            () = sleep(LOOK_AGAIN) => {}
        }
        // A failed inspection is repeated; Compose reports real errors.
        let seen = services(runtime, stack.project()).await.unwrap_or_default();
        if seen.iter().any(has_failed) {
            return Ok(ComposeEnd::Hopeless(seen));
        }
        checks.run_due(runtime, &seen).await;
    }
}

/// Services of the stack that have no container yet, or one that is not good.
fn not_good(stack: &AdmittedStack, seen: &[Service]) -> BTreeSet<String> {
    let wanted = |name: &str| stack.model().services.get(name).and_then(|it| it.scale) != Some(0);
    let missing = |name: &&str| wanted(name) && !seen.iter().any(|it| it.service == **name);
    let names = stack.services().iter().map(|it| it.service.as_str());
    let bad = seen.iter().filter(|it| !is_good(it, has_check(stack, &it.service))).map(|it| it.service.clone());
    names.filter(missing).map(str::to_owned).chain(bad).collect()
}

/// Whether the file itself names a health check. What an image brings along is not known here.
fn has_check(stack: &AdmittedStack, service: &str) -> bool {
    let check = stack.model().services.get(service).and_then(|it| it.healthcheck.as_ref());
    check.is_some_and(|it| !it.disable && it.test.first().is_some_and(|word| word != "NONE"))
}

/// Podman reports no health for a moment after a start, which Compose takes for a service without a check.
fn is_good(service: &Service, has_check: bool) -> bool {
    match service.state {
        ContainerStatus::Running => service.health.map_or(!has_check, |it| it == Health::Healthy),
        ContainerStatus::Exited => service.exit_code == Some(0),
        _ => false,
    }
}

fn started_once(service: &Service) -> bool {
    service.state != ContainerStatus::Created
}

fn compose_failed(excerpt: Excerpt) -> Error {
    Error::Engine { verb: "compose up", exit: 1, excerpt }
}

fn has_failed(service: &Service) -> bool {
    matches!(service.state, ContainerStatus::Exited | ContainerStatus::Dead) && service.exit_code != Some(0)
}

/// The error of a stack that did not come up. Without a failed service it is Compose's.
async fn failure(
    runtime: &dyn ContainerRuntime,
    stack: &AdmittedStack,
    seen: &[Service],
    cause: Option<Error>,
) -> StackError {
    let to_blame = seen.iter().any(|it| has_failed(it) || it.health == Some(Health::Unhealthy));
    match cause {
        Some(cause) if !to_blame => return StackError::Engine(cause),
        _ => {}
    }
    let failed: BTreeSet<_> = seen.iter().filter(|it| has_failed(it)).map(|it| it.service.clone()).collect();
    // Beside one that failed, the others had no time to become good.
    let names = if failed.is_empty() { not_good(stack, seen) } else { failed };
    let mut bad = Vec::new();
    for name in names {
        let of_service: Vec<_> =
            seen.iter().filter(|it| it.service == name && !is_good(it, has_check(stack, &name))).collect();
        if of_service.is_empty() {
            bad.push(BadService { service: name, state: None, health: None, exit_code: None, log: String::new() });
            continue;
        }
        for it in of_service {
            // An unreadable log does not hide the rest.
            let log = runtime.logs(&it.id, LOG_BYTES).await.unwrap_or_default();
            let last = &log[log.len().saturating_sub(LOG_BYTES)..];
            bad.push(BadService {
                service: it.service.clone(),
                state: Some(it.state),
                health: it.health,
                exit_code: it.exit_code,
                log: Excerpt::from_bytes(last).as_str().to_owned(),
            });
        }
    }
    StackError::Bad { bad, cause: cause.map(Box::new) }
}

/// Whether what the engine bound is what was admitted: device and inode.
async fn unchanged(runtime: &dyn ContainerRuntime, stack: &AdmittedStack, seen: &[Service]) -> Result<(), StackError> {
    for service in seen.iter().filter(|it| stack.binds().iter().any(|(name, _)| *name == it.service)) {
        let made = match runtime.inspect(&Handle::from(&service.id)).await {
            Ok(made) => made,
            Err(Error::NoSuchContainer(_)) => continue,
            Err(err) => return Err(err.into()),
        };
        for (_, bind) in stack.binds().iter().filter(|(name, _)| *name == service.service) {
            let source = made.mounts.iter().find(|it| it.target == bind.at.as_str()).map(|it| &it.source);
            if source.is_none_or(|it| bind.host.is_same_as(it).unwrap_or(false)) {
                continue;
            }
            let targets = vec![bind.host.real().display().to_string()];
            return Err(Error::MountChanged { targets }.into());
        }
    }
    Ok(())
}

/// The services of a project as they are, sorted.
///
/// # Errors
/// Those of the engine.
pub async fn services(runtime: &dyn ContainerRuntime, project: &ProjectName) -> Result<Vec<Service>, Error> {
    let mut found: Vec<_> = runtime.list(&of_project(project)).await?.into_iter().filter_map(service).collect();
    name_images(runtime, &mut found).await;
    found.sort_by(|a, b| (&a.service, &a.name).cmp(&(&b.service, &b.name)));
    Ok(found)
}

fn of_project(project: &ProjectName) -> LabelFilter {
    LabelFilter(vec![(PROJECT.to_owned(), Some(project.to_string()))])
}

/// A container that Compose made, by the labels that it puts on them: its own list says no more, and says it in one form or
/// another by its version.
fn service(mut it: Container) -> Option<Service> {
    let ended = matches!(it.status, ContainerStatus::Exited | ContainerStatus::Dead);
    Some(Service {
        service: it.labels.remove(SERVICE)?,
        name: it.name,
        container_id: it.id.short().to_owned(),
        image: it.image.to_string(),
        state: it.status,
        health: it.health,
        exit_code: it.exit_code.filter(|_| ended),
        ports: it.ports,
        id: it.id,
    })
}

/// Engines tell the ids of images. An image that is gone by now keeps its id for a name.
async fn name_images(runtime: &dyn ContainerRuntime, services: &mut [Service]) {
    let ids: BTreeSet<_> = services.iter().filter_map(|it| ImageRef::parse(&it.image).ok()).collect();
    let images = runtime.find_images(&ids.into_iter().collect::<Vec<_>>()).await.unwrap_or_default();
    for service in services {
        let image = images.iter().find(|it| it.id.as_str() == service.image);
        if let Some(tag) = image.and_then(|it| it.tags.first()) {
            service.image.clone_from(tag);
        }
    }
}

/// Takes a project down with its networks and volumes. The caller has proved that it is ours: see [`claim`].
///
/// # Errors
/// Those of the engine.
pub async fn down(runtime: &dyn ContainerRuntime, project: &ProjectName) -> Result<(), Error> {
    runtime.stack_down(project).await
}

#[cfg(test)]
mod tests;
