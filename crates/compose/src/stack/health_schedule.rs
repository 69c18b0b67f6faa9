//! Runs health checks that the engine does not run, at their services' intervals.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_runtime::ContainerRuntime;
use coracle_runtime::stack_model::Service;
use coracle_types::{ContainerId, ContainerStatus};
use tokio::time::Instant;

use crate::AdmittedStack;

/// The engines' default interval.
const USUAL: Duration = Duration::from_secs(30);

/// The next check of each container.
#[derive(Debug)]
pub(super) struct HealthChecks {
    on_demand: bool,
    intervals: BTreeMap<String, Duration>,
    due: BTreeMap<ContainerId, Instant>,
}

impl HealthChecks {
    pub(super) fn new(stack: &AdmittedStack, on_demand: bool) -> Self {
        let interval = |service: &Service| service.healthcheck.as_ref()?.interval.filter(|it| !it.is_zero());
        let intervals =
            stack.model().services.iter().filter_map(|(name, service)| Some((name.clone(), interval(service)?)));
        Self { on_demand, intervals: intervals.collect(), due: BTreeMap::new() }
    }

    /// Runs the checks that are due. As in engines, the first one is due one interval after the container was first
    /// seen. If a check cannot be run, the container's health does not change.
    pub(super) async fn run_due(&mut self, runtime: &dyn ContainerRuntime, seen: &[super::Service]) {
        if !self.on_demand {
            return;
        }
        for service in seen.iter().filter(|it| it.state == ContainerStatus::Running && it.health.is_some()) {
            let interval = self.intervals.get(&service.service).copied().unwrap_or(USUAL);
            let due = self.due.entry(service.id.clone()).or_insert_with(|| Instant::now() + interval);
            if *due > Instant::now() {
                continue;
            }
            if let Err(err) = runtime.check_health(&service.id).await {
                tracing::debug!(service = service.service, "health check: {err}");
            }
            *due = Instant::now() + interval;
        }
    }
}
