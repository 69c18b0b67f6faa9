//! Measures the current resource usage of a container.

use std::sync::Arc;

use coracle_runtime::ContainerUsage;
use coracle_types::{ContainerId, Result};

use crate::blocking::blocking;
use crate::container::state::State;
use crate::container::{StoredContainer, find};
use crate::engine::Engine;
use crate::tree_size::{SizeLimits, bytes_below};

const LIMITS: SizeLimits = SizeLimits { depth: 128, entries: 500_000 };

/// Returns `None` if it does not run, or has no control group that counts.
pub(crate) async fn usage(engine: &Arc<Engine>, id: &ContainerId) -> Result<Option<ContainerUsage>> {
    let container = find(engine, &id.into())?;
    let state = container.state()?;
    let State::Running { run, process } = state else { return Ok(None) };
    let Some(used) = run.group.usage(process.pid, &engine.cpu_samples).await else { return Ok(None) };
    let engine = engine.clone();
    let disk_bytes = blocking("count the files of a container", move || Ok(own_bytes(&engine, &container))).await?;
    Ok(Some(ContainerUsage {
        memory_bytes: used.memory_bytes,
        pids: used.pids,
        cpu_percent: used.cpu_percent,
        disk_bytes,
        cpu_seconds: Some(used.cpu_seconds),
    }))
}

/// Bytes of the files that it changed. `None` if they cannot be counted, or there are too many.
fn own_bytes(engine: &Engine, container: &StoredContainer) -> Option<u64> {
    let upper = container.dir.upper();
    engine.privileges.run_as_owner(|| bytes_below(&upper, LIMITS)).ok()
}
