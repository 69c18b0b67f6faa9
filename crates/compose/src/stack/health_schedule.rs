//! Health checks that the engine does not run, at their services' intervals.

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_runtime::{ContainerId, ContainerRuntime, ContainerStatus};
use tokio::time::Instant;

use super::service::Service;
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
        let services = stack.model()["services"].as_object().into_iter().flatten();
        let interval = |check: &serde_json::Value| check.get("interval")?.as_str().and_then(duration);
        let intervals = services.filter_map(|(name, it)| Some((name.clone(), interval(it.get("healthcheck")?)?)));
        Self { on_demand, intervals: intervals.collect(), due: BTreeMap::new() }
    }

    /// Runs the checks that are due: as engines do, the first one interval after a container was first seen. If a check
    /// cannot be run, the container's health stays what it is.
    pub(super) async fn run_due(&mut self, runtime: &dyn ContainerRuntime, seen: &[Service]) {
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

/// `1m30s`, `500ms`, as normalised models have them.
fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let after = &rest[digits..];
        let unit = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let seconds = match &after[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 0.001,
            "us" | "µs" => 0.000_001,
            "ns" => 0.000_000_001,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(rest[..digits].parse::<f64>().ok()? * seconds).ok()?)?;
        rest = &after[unit..];
    }
    (total > Duration::ZERO).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_models() {
        let ms = |text: &str| duration(text).map(|it| it.as_millis());
        assert_eq!(ms("1m30s"), Some(90_000));
        assert_eq!(ms("500ms"), Some(500));
        assert_eq!(ms("1h0m0.5s"), Some(3_600_500));
        for bad in ["", "0s", "s", "5", "5 s", "-1s", "1e400h", "99999999999999999999h"] {
            assert_eq!(duration(bad), None, "{bad}");
        }
    }
}
