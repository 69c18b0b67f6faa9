//! A container that stands still for a moment.

use coracle_runtime::Result;

use super::containers::StoredContainer;
use super::host_error;
use super::state::State;
use crate::cgroup::ContainerGroup;

/// Processes that run again when it is dropped, whatever happens.
#[derive(Debug)]
struct FrozenGroup(Option<ContainerGroup>);

impl FrozenGroup {
    fn thaw(mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), |it| it.thaw())
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        if let Some(Err(err)) = self.0.take().map(|it| it.thaw()) {
            tracing::error!(%err, "the processes of a container stand still");
        }
    }
}

/// The control group of a container that runs.
pub(super) fn running_group(container: &StoredContainer) -> Result<Option<ContainerGroup>> {
    let state = State::read(&container.dir).map_err(host_error("cannot read the state of the container"))?;
    Ok(state.process().and(state.run()).map(|it| it.group.clone()))
}

/// Runs `work` while the container's processes, if there are any, stand still. Without a group that freezes (a user
/// without delegation) they go on meanwhile.
///
/// # Errors
/// When they cannot be frozen: then `work` did not run. When they cannot be let go on.
pub(super) fn while_frozen<T>(container: &StoredContainer, work: impl FnOnce() -> T) -> Result<T> {
    let Some(group) = running_group(container)?.filter(ContainerGroup::can_freeze) else { return Ok(work()) };
    group.freeze()?;
    let frozen = FrozenGroup(Some(group));
    let done = work();
    frozen.thaw()?;
    Ok(done)
}
