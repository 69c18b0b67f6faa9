//! A container whose processes stand still for a moment, while its files are copied.

use std::time::Duration;

use coracle_host::lock::Lock;
use coracle_types::{Error, Result};

use super::containers::StoredContainer;
use super::host_error;
use crate::cgroup::ContainerGroup;
use crate::engine::Engine;
use crate::oci_runtime::OciRuntime;
use crate::pending::{Operation, PendingOperation};

/// Another copy of the same container may take this long.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The right to freeze a container, and to let it go on. One process has it at a time.
#[derive(Debug)]
pub(super) struct FreezeLock(#[expect(dead_code, reason = "held for its drop")] Lock);

impl FreezeLock {
    pub(super) async fn take(container: &StoredContainer) -> Result<Self> {
        Self::take_within(container, TIMEOUT).await
    }

    pub(super) async fn take_within(container: &StoredContainer, patience: Duration) -> Result<Self> {
        let taken = Lock::take(&container.dir.freeze_lock(), patience).await;
        let taken = taken.map_err(host_error("cannot lock the container"))?;
        taken.map(Self).ok_or(Error::TimedOut { verb: "freeze", after: patience })
    }
}

/// Processes that run again when it is dropped, whatever happens.
#[derive(Debug)]
struct FrozenGroup(Option<(ContainerGroup, PendingOperation)>);

impl FrozenGroup {
    fn thaw(mut self) -> Result<()> {
        let Some((group, pending)) = self.0.take() else { return Ok(()) };
        group.thaw()?;
        pending.finish();
        Ok(())
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        let Some((group, pending)) = self.0.take() else { return };
        match group.thaw() {
            Ok(()) => pending.finish(),
            Err(err) => tracing::warn!(%err, "a container stands still"),
        }
    }
}

/// The control group of a container that runs, and whose kernel is the host's: another is stopped by its runtime.
pub(super) fn running_group(container: &StoredContainer) -> Result<Option<ContainerGroup>> {
    if container.config.runtime.is_some_and(OciRuntime::has_own_kernel) {
        return Ok(None);
    }
    let state = container.state()?;
    Ok(state.process().and(state.run()).map(|it| it.group.clone()))
}

/// Runs `work` while the container's processes, if there are any, stand still. Without a group that freezes (a user
/// without delegation) they go on meanwhile. Blocks.
///
/// # Errors
/// When they cannot be frozen: then `work` did not run. When they cannot be let go on.
pub(super) fn while_frozen<T>(
    engine: &Engine,
    container: &StoredContainer,
    _lock: &FreezeLock,
    work: impl FnOnce() -> T,
) -> Result<T> {
    let Some(group) = running_group(container)?.filter(ContainerGroup::can_freeze) else { return Ok(work()) };
    let pending = engine.pending.begin(&Operation::FreezeContainer(container.config.id.clone()))?;
    group.freeze()?;
    let frozen = FrozenGroup(Some((group, pending)));
    let done = work();
    frozen.thaw()?;
    Ok(done)
}

/// Lets a container run again whose freezer died.
pub(super) fn thaw(container: &StoredContainer, _lock: &FreezeLock) -> Result<()> {
    running_group(container)?.map_or(Ok(()), |it| it.thaw())
}
