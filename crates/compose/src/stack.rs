//! Claims, brings up, inspects and takes down stacks.

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

/// Maximum size of a failed service's log in an error.
const LOG_BYTES: usize = 2048;

/// Time between two inspections of services that are not ready.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Compose's label on everything that it creates.
const PROJECT: &str = "com.docker.compose.project";

/// Compose's label on the containers of a service.
const SERVICE: &str = "com.docker.compose.service";

/// The owner of a project name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is free.
    Free,
    /// Coracle owns everything that has it.
    Ours,
    /// Something that is not Coracle's has it.
    Foreign,
}

/// A service that is not ready, with its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadService {
    /// The service.
    pub service: String,
    /// Its state; none if it has no container.
    pub state: Option<ContainerStatus>,
    /// The result of its health check.
    pub health: Option<Health>,
    /// Exit code of its PID 1.
    pub exit_code: Option<i64>,
    /// The end of its output, at most 2 KiB, control characters escaped.
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
        /// Compose's error, if it failed.
        #[source]
        cause: Option<Box<Error>>,
    },
    /// Compose or the engine failed, while no failed service is known.
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
    /// The base of relative paths.
    pub dir: PathBuf,
    /// The time in which all services have to be ready (`compose.timeout`).
    pub patience: Duration,
    /// Whether the engine does not run health checks by itself, like Podman.
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

/// Brings a stack up and waits until every service is ready: healthy, running without a health check, or ended with 0.
/// Another exit code ends the wait. Nothing is removed: the caller takes the stack [`down`].
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
    let (error, cause) = match started(runtime, stack, how, &mut checks).await {
        Ok(ComposeEnd::Done(error)) => (error, None),
        Ok(ComposeEnd::ServiceFailed(seen)) => return Err(failure(runtime, stack, &seen, None).await),
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
        // A service that Compose failed to start stays stopped.
        let given_up =
            error.is_some() && bad.iter().any(|name| !seen.iter().any(|it| it.service == *name && started_once(it)));
        if cause.is_some() || hopeless || given_up || Instant::now() >= give_up {
            let cause = cause.or(error.filter(|_| given_up).map(compose_failed));
            return Err(failure(runtime, stack, &seen, cause).await);
        }
        checks.run_due(runtime, &seen).await;
        sleep(POLL_INTERVAL).await;
    }
}

/// How a run of Compose ended.
enum ComposeEnd {
    /// By itself, with its error if it failed.
    Done(Option<Excerpt>),
    /// A service failed meanwhile; the services at that moment, since stopping Compose may stop others.
    ServiceFailed(Vec<Service>),
}

/// Runs Compose, and meanwhile the health checks that the engine does not run. A failed service ends Compose, which
/// might wait for others that depend on it.
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
            () = sleep(POLL_INTERVAL) => {}
        }
        // A failed inspection is repeated; Compose reports real errors.
        let seen = services(runtime, stack.project()).await.unwrap_or_default();
        if seen.iter().any(has_failed) {
            return Ok(ComposeEnd::ServiceFailed(seen));
        }
        checks.run_due(runtime, &seen).await;
    }
}

/// Lists the services of the stack without a container, or with one that is not ready.
fn not_good(stack: &AdmittedStack, seen: &[Service]) -> BTreeSet<String> {
    let wanted = |name: &str| stack.model().services.get(name).and_then(|it| it.scale) != Some(0);
    let missing = |name: &&str| wanted(name) && !seen.iter().any(|it| it.service == **name);
    let names = stack.services().iter().map(|it| it.service.as_str());
    let bad = seen.iter().filter(|it| !is_good(it, has_check(stack, &it.service))).map(|it| it.service.clone());
    names.filter(missing).map(str::to_owned).chain(bad).collect()
}

/// Whether the file itself has a health check. That of an image is not known here.
fn has_check(stack: &AdmittedStack, service: &str) -> bool {
    let check = stack.model().services.get(service).and_then(|it| it.healthcheck.as_ref());
    check.is_some_and(|it| !it.disable && it.test.first().is_some_and(|word| word != "NONE"))
}

/// Podman reports no health for a moment after a start, which looks like a service without a check.
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

/// Builds the error of a stack that did not come up. Without a failed service it is Compose's.
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
    // If one failed, the others had no time to become ready.
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

/// Checks that the engine bound what was admitted, by device and inode.
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

/// Lists the services of a project, sorted.
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

/// Reads a container that Compose created, by its labels: Compose's own list has no more fields, and its format depends
/// on the version.
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

/// Replaces the ids of images by names. An image that was removed keeps its id.
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

/// Takes a project down with its networks and volumes. The caller has proved that it is Coracle's: see [`claim`].
///
/// # Errors
/// Those of the engine.
pub async fn down(runtime: &dyn ContainerRuntime, project: &ProjectName) -> Result<(), Error> {
    runtime.stack_down(project).await
}

#[cfg(test)]
mod tests;
