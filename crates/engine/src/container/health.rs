//! The record of a container's health checks.

use std::time::{SystemTime, UNIX_EPOCH};

use coracle_runtime::Health;
use coracle_types::Result;
use serde::{Deserialize, Serialize};

use super::containers::StoredContainer;
use super::directory::{read_json, write_json};
use super::host_error;
use super::state::{RunRecord, State};

/// The result of the health checks of one run. Times are milliseconds since its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HealthRecord {
    /// The start of the run.
    pub(crate) run: String,
    pub(crate) health: Health,
    pub(crate) failures: u32,
    pub(crate) checked_ms: u64,
    /// The last failure that counted.
    pub(crate) counted_ms: u64,
}

impl Default for HealthRecord {
    fn default() -> Self {
        Self { run: String::new(), health: Health::Starting, failures: 0, checked_ms: 0, counted_ms: 0 }
    }
}

/// Returns the record of the current run, and the time since its start. `None` if the container has no check, or does not
/// run.
pub(crate) fn health_record(stored: &StoredContainer) -> Result<Option<(HealthRecord, u64)>> {
    let failed = || host_error("cannot read the state of the container");
    if !has_check(stored) {
        return Ok(None);
    }
    let State::Running { run, .. } = stored.state()? else { return Ok(None) };
    let record: Option<HealthRecord> = read_json(&stored.dir.health_file()).map_err(failed())?;
    let fresh = HealthRecord { run: run.started_at.clone(), ..HealthRecord::default() };
    let record = record.filter(|it| it.run == run.started_at).unwrap_or(fresh);
    Ok(Some((record, since_start(&run))))
}

/// Returns the last result of the last run, for `inspect`.
pub(crate) fn health(stored: &StoredContainer) -> Result<Option<Health>> {
    if !has_check(stored) {
        return Ok(None);
    }
    let failed = || host_error("cannot read the state of the container");
    let state = stored.state()?;
    let record: Option<HealthRecord> = read_json(&stored.dir.health_file()).map_err(failed())?;
    let of_run = record.filter(|it| state.run().is_some_and(|run| run.started_at == it.run));
    Ok(Some(of_run.map_or(Health::Starting, |it| it.health)))
}

pub(crate) fn write_health(stored: &StoredContainer, record: &HealthRecord) -> Result<()> {
    write_json(&stored.dir.health_file(), record).map_err(host_error("cannot record the health of the container"))
}

fn has_check(stored: &StoredContainer) -> bool {
    stored.config.service.as_ref().is_some_and(|it| it.health.is_some())
}

fn since_start(run: &RunRecord) -> u64 {
    let started = run.started_at.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_millisecond);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(i128::try_from(now).unwrap_or_default() - i128::from(started)).unwrap_or_default()
}
