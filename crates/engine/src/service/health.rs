//! Health checks: their configuration in an image or a file, a single check, and the resulting health.
//!
//! No background process runs them: the call that waits for a container does, and records the result in its directory.

use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::{Health, stack_model as model};
use coracle_types::{Command, ContainerId, ContainerPath, Error, Exec, Exit, ImageId, Result};

use crate::container::{self, HealthRecord, StoredContainer};
use crate::engine::Engine;
use crate::health_check::{HealthCheck, INTERVAL, RETRIES, command};

/// How often a check without a known result is repeated, since others wait for it.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);

/// The check of an image, as the file changes it.
pub(super) fn check_of_service(
    engine: &Engine,
    image: &ImageId,
    check: Option<&model::HealthCheck>,
) -> Result<Option<HealthCheck>> {
    let check = check.cloned().unwrap_or_default();
    if check.disable || check.test.first().is_some_and(|it| it == "NONE") {
        return Ok(None);
    }
    let base = HealthCheck::of_image(engine, image)?;
    let base = base.as_ref();
    let Some(words) = command(&check.test).or_else(|| Some(base?.words.clone())) else { return Ok(None) };
    Ok(Some(HealthCheck {
        words,
        interval: check.interval.or(base.map(|it| it.interval)).unwrap_or(INTERVAL),
        timeout: check.timeout.or(base.map(|it| it.timeout)).unwrap_or(INTERVAL),
        start_period: check.start_period.or(base.map(|it| it.start_period)).unwrap_or_default(),
        retries: check.retries.filter(|it| *it > 0).or(base.map(|it| it.retries)).unwrap_or(RETRIES),
    }))
}

/// Computes the health from the checks of a run. Pure.
fn after_check(mut record: HealthRecord, check: &HealthCheck, passed: bool, now_ms: u64) -> HealthRecord {
    record.checked_ms = now_ms;
    if passed {
        record.health = Health::Healthy;
        record.failures = 0;
        return record;
    }
    // Checks before the interval has passed can only succeed: their failures do not count.
    let interval = u64::try_from(check.interval.as_millis()).unwrap_or(u64::MAX);
    let starting = u64::try_from(check.start_period.as_millis()).unwrap_or(u64::MAX);
    let excused = record.health == Health::Starting && now_ms < starting;
    if excused || now_ms < record.counted_ms.saturating_add(interval) {
        return record;
    }
    record.counted_ms = now_ms;
    record.failures += 1;
    if record.failures >= check.retries {
        record.health = Health::Unhealthy;
    }
    record
}

/// Whether it is time for another check.
pub(super) fn is_due(record: &HealthRecord, check: &HealthCheck, now_ms: u64) -> bool {
    let every = match record.health {
        Health::Starting => check.interval.min(FIRST_INTERVAL),
        Health::Healthy | Health::Unhealthy => check.interval,
    };
    u128::from(now_ms) >= u128::from(record.checked_ms) + every.as_millis()
}

/// Runs a container's check and records the result. `None` if the container has no check or does not run.
///
/// # Errors
/// Those of running a command.
pub(crate) async fn run(engine: &Arc<Engine>, id: &ContainerId) -> Result<Option<Health>> {
    let stored = container::find(engine, &id.into())?;
    let Some(check) = stored.config.service.as_ref().and_then(|it| it.health.clone()) else { return Ok(None) };
    let Some((record, now_ms)) = container::health_record(&stored)? else { return container::health(&stored) };
    let passed = match engine_exec(engine, &stored, &check).await {
        Ok(passed) => passed,
        // The container ended meanwhile.
        Err(Error::NotRunning { .. }) => return container::health(&stored),
        Err(err) => return Err(err),
    };
    let record = after_check(record, &check, passed, now_ms);
    container::write_health(&stored, &record)?;
    Ok(Some(record.health))
}

async fn engine_exec(engine: &Arc<Engine>, stored: &StoredContainer, check: &HealthCheck) -> Result<bool> {
    let config = &stored.config;
    let workdir = ContainerPath::parse(&config.workdir).unwrap_or_else(|_| ContainerPath::root());
    let mut exec = Exec::new(Command::Argv(check.words.clone()), config.user, workdir);
    exec.env = config.env.iter().filter_map(|it| it.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
    exec.limits.total = Some(check.timeout);
    exec.keep_bytes = 4096;
    let output = container::exec(engine, &config.id, exec).await?;
    Ok(output.exit == Exit::Code(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check() -> HealthCheck {
        HealthCheck {
            words: vec!["true".into()],
            interval: Duration::from_secs(10),
            timeout: INTERVAL,
            start_period: Duration::ZERO,
            retries: 2,
        }
    }

    fn after(check: &HealthCheck, results: &[(u64, bool)]) -> HealthRecord {
        results.iter().fold(HealthRecord::default(), |it, (at, passed)| after_check(it, check, *passed, *at))
    }

    #[test]
    fn failures_count_at_the_interval_and_one_success_makes_healthy() {
        let check = check();
        let soon = after(&check, &[(1000, false), (2000, false), (3000, false)]);
        assert_eq!((soon.health, soon.failures), (Health::Starting, 0));
        assert_eq!(after(&check, &[(10_000, false)]).health, Health::Starting);
        assert_eq!(after(&check, &[(10_000, false), (11_000, false)]).failures, 1);
        assert_eq!(after(&check, &[(10_000, false), (20_000, false)]).health, Health::Unhealthy);
        assert_eq!(after(&check, &[(10_000, false), (20_000, false), (21_000, true)]).health, Health::Healthy);
        assert_eq!(after(&check, &[(1000, true), (20_000, false)]).health, Health::Healthy);
    }

    #[test]
    fn failures_of_the_start_period_are_excused() {
        let check = HealthCheck { start_period: Duration::from_secs(60), ..check() };
        assert_eq!(after(&check, &[(20_000, false), (40_000, false), (59_000, false)]).failures, 0);
        assert_eq!(after(&check, &[(61_000, false), (72_000, false)]).health, Health::Unhealthy);
    }

    #[test]
    fn a_check_without_a_result_is_repeated_soon() {
        let at = |health, checked_ms| HealthRecord { health, checked_ms, ..HealthRecord::default() };
        assert!(is_due(&at(Health::Starting, 0), &check(), 1000) && !is_due(&at(Health::Starting, 0), &check(), 900));
        assert!(!is_due(&at(Health::Healthy, 0), &check(), 9000) && is_due(&at(Health::Healthy, 0), &check(), 10_000));
    }
}
