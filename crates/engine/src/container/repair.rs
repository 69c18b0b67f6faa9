//! Repairs containers after a process of the engine died in the middle of an operation.

use std::sync::Arc;
use std::time::Duration;

use coracle_host::lock::Lock;
use coracle_types::{ContainerId, Error, Result};

use super::containers::{StoredContainer, lock_names, release_name, stored};
use super::directory::ContainerDir;
use super::freeze::{self, FreezeLock};
use super::{by_runtime, end, host_error};
use crate::engine::Engine;
use crate::network::end_stack;

/// Timeout for locks: children of a process that died hold its locks until they have executed their program.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Removes a container that was not published, and releases its name.
pub(crate) async fn repair_creation(engine: &Engine, id: &ContainerId) -> Result<()> {
    let containers = engine.directories.containers();
    let aside = ContainerDir::at(containers.join(format!("{id}.new")));
    let _names = lock_names(engine, "repair").await?;
    let config = aside.config().map_err(host_error("cannot read an unfinished container"))?;
    if let Some(config) = config.filter(|_| !containers.join(id.as_str()).exists()) {
        release_name(engine, &config);
    }
    engine.trash.discard(aside.path()).map_err(host_error("cannot remove an unfinished container"))
}

/// Ends a container whose start is incomplete: its network may be missing, and its start was never reported.
pub(crate) async fn repair_start(engine: &Arc<Engine>, id: &ContainerId) -> Result<()> {
    let Some((container, _lock)) = locked(engine, id).await? else { return remove_groups(engine, id) };
    let is_complete = container.process()?.is_some() && container.is_start_complete();
    if is_complete {
        return Ok(());
    }
    end_interrupted_start(engine, &container).await
}

/// Ends and removes what an interrupted start left. The caller holds the container's lock.
pub(super) async fn end_interrupted_start(engine: &Arc<Engine>, container: &StoredContainer) -> Result<()> {
    let pid = container.process()?.map(|it| it.pid);
    let ended = end_stack(&container.dir.network_pid_file(), pid);
    ended.map_err(host_error("cannot end the network of the container"))?;
    end::kill(engine, container).await?;
    container.dir.remove_unfinished_files().map_err(host_error("cannot remove unfinished files of the container"))?;
    remove_groups(engine, &container.config.id)
}

/// Finishes a stop by killing the container: the signal may have been sent, so it may be about to end anyway.
pub(crate) async fn repair_stop(engine: &Arc<Engine>, id: &ContainerId) -> Result<()> {
    if let Some((container, _lock)) = locked(engine, id).await? {
        end::kill(engine, &container).await?;
    }
    remove_groups(engine, id)
}

/// Finishes a removal.
pub(crate) async fn repair_removal(engine: &Arc<Engine>, id: &ContainerId) -> Result<()> {
    if let Some((container, lock)) = locked(engine, id).await? {
        end::remove_locked(engine, container, lock).await?;
    }
    remove_groups(engine, id)
}

/// Thaws a container that was frozen for a commit or a copy.
pub(crate) async fn repair_freeze(engine: &Engine, id: &ContainerId) -> Result<()> {
    let Some(container) = find(engine, id)? else { return Ok(()) };
    // If another operation holds the lock, it thaws the container itself.
    let lock = FreezeLock::take_within(&container, TIMEOUT).await?;
    by_runtime::repair_pause(engine, &container).await?;
    freeze::thaw(&container, &lock)
}

fn find(engine: &Engine, id: &ContainerId) -> Result<Option<StoredContainer>> {
    stored(engine, id.as_str()).map_err(host_error("cannot read the containers"))
}

/// Returns the container with its lock, if it still exists.
async fn locked(engine: &Engine, id: &ContainerId) -> Result<Option<(StoredContainer, Lock)>> {
    let Some(container) = find(engine, id)? else { return Ok(None) };
    match Lock::take(&container.dir.lock(), TIMEOUT).await {
        Ok(Some(lock)) => Ok(Some((container, lock))),
        Ok(None) => Err(Error::TimedOut { verb: "repair", after: TIMEOUT }),
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(host_error("cannot lock the container")(err)),
    }
}

/// Removes control groups by the container's id: they are created before the start is recorded.
fn remove_groups(engine: &Engine, id: &ContainerId) -> Result<()> {
    engine.cgroups.remove(id.as_str())
}
