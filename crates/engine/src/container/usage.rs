//! What a container uses now.

use coracle_runtime::{ContainerId, ContainerUsage, Result};

use super::containers::{StoredContainer, find};
use super::host_error;
use super::state::State;
use crate::engine::Engine;

/// `None` when it does not run, or no control group counts.
pub(crate) async fn usage(engine: &Engine, id: &ContainerId) -> Result<Option<ContainerUsage>> {
    let container = find(engine, &id.into())?;
    let state = State::read(&container.dir).map_err(host_error("cannot read the state of the container"))?;
    let State::Running { run, process } = state else { return Ok(None) };
    let Some(used) = run.group.usage(process.pid, &engine.cpu_samples).await else { return Ok(None) };
    let disk_bytes = own_bytes(engine, &container);
    Ok(Some(ContainerUsage {
        memory_bytes: used.memory_bytes,
        pids: used.pids,
        cpu_percent: used.cpu_percent,
        disk_bytes,
    }))
}

/// Bytes of the files that it changed. `None` where they cannot be counted.
fn own_bytes(engine: &Engine, container: &StoredContainer) -> Option<u64> {
    let upper = container.dir.upper();
    engine.privileges.run_as_owner(|| Ok(size_of_tree(&upper))).ok()
}

fn size_of_tree(dir: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let size = |it: std::fs::DirEntry| match it.metadata() {
        Ok(found) if found.is_dir() => size_of_tree(&it.path()),
        Ok(found) if found.is_file() => found.len(),
        _ => 0,
    };
    entries.map(size).sum()
}
