//! Freezes a container's processes while its files are copied.

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

/// The right to freeze and thaw a container, which one process has at a time.
#[derive(Debug)]
pub(crate) struct FreezeLock(#[expect(dead_code, reason = "held for its drop")] Lock);

impl FreezeLock {
    pub(crate) async fn take(container: &StoredContainer) -> Result<Self> {
        Self::take_within(container, TIMEOUT).await
    }

    pub(super) async fn take_within(container: &StoredContainer, patience: Duration) -> Result<Self> {
        let taken = Lock::take(&container.dir.freeze_lock(), patience).await;
        let taken = taken.map_err(host_error("cannot lock the container"))?;
        taken.map(Self).ok_or(Error::TimedOut { verb: "freeze", after: patience })
    }
}

/// A frozen control group, which is thawed when this is dropped.
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
            Err(err) => tracing::warn!(%err, "a container stays frozen"),
        }
    }
}

/// Returns the control group of a running container on the host's kernel. A container with a kernel of its own is paused by
/// its runtime instead.
pub(crate) fn running_group(container: &StoredContainer) -> Result<Option<ContainerGroup>> {
    if container.config.runtime.is_some_and(OciRuntime::has_own_kernel) {
        return Ok(None);
    }
    let state = container.state()?;
    Ok(state.process().and(state.run()).map(|it| it.group.clone()))
}

/// Runs `work` while the container's processes are frozen. If there is no control group that can freeze them, because none
/// is delegated to the user, they run on meanwhile. Blocks.
///
/// # Errors
/// If they cannot be frozen, in which case `work` did not run, or cannot be thawed.
pub(crate) fn while_frozen<T>(
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

/// Thaws a container that was left frozen by a process that died.
pub(super) fn thaw(container: &StoredContainer, _lock: &FreezeLock) -> Result<()> {
    running_group(container)?.map_or(Ok(()), |it| it.thaw())
}
