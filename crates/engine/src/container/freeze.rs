//! Containers whose processes stand still while their files are copied.

use std::time::Duration;

use coracle_runtime::host::lock::Lock;
use coracle_runtime::{Error, Result};

use super::containers::StoredContainer;
use super::directory::ContainerDir;
use super::host_error;
use super::state::State;
use crate::cgroup::ContainerGroup;
use crate::engine::Engine;
use crate::pending::{Operation, PendingOperation};

/// Another copy of the same container may take this long.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

/// A container that stands still until this is dropped. Others that want to freeze it wait.
#[derive(Debug)]
pub(super) struct FrozenContainer {
    frozen: Option<(ContainerGroup, PendingOperation)>,
    _lock: Lock,
}

impl FrozenContainer {
    /// Freezes a container that runs. One without control groups that can do that is an error. Blocks.
    pub(super) fn freeze(engine: &Engine, container: &StoredContainer, lock: Lock) -> Result<Self> {
        let state = State::read(&container.dir).map_err(host_error("cannot read the state of the container"))?;
        let State::Running { run, .. } = state else { return Ok(Self { frozen: None, _lock: lock }) };
        let pending = engine.pending.begin(&Operation::FreezeContainer(container.config.id.clone()))?;
        run.group.freeze()?;
        Ok(Self { frozen: Some((run.group, pending)), _lock: lock })
    }

    /// Lets it run again.
    pub(super) fn thaw(mut self) -> Result<()> {
        let Some((group, pending)) = self.frozen.take() else { return Ok(()) };
        group.thaw()?;
        pending.finish();
        Ok(())
    }
}

impl Drop for FrozenContainer {
    fn drop(&mut self) {
        let Some((group, pending)) = self.frozen.take() else { return };
        match group.thaw() {
            Ok(()) => pending.finish(),
            Err(err) => tracing::warn!(%err, "a container stands still"),
        }
    }
}

/// Keeps others from freezing and thawing a container.
pub(super) async fn lock(dir: &ContainerDir, patience: Duration) -> Result<Lock> {
    let taken = Lock::take(&dir.freeze_lock(), patience).await.map_err(host_error("cannot lock the container"))?;
    taken.ok_or(Error::TimedOut { verb: "freeze", after: patience })
}

/// Lets a container run again whose freezer died.
pub(super) fn thaw(container: &StoredContainer) -> Result<()> {
    let state = State::read(&container.dir).map_err(host_error("cannot read the state of the container"))?;
    state.run().map_or(Ok(()), |it| it.group.thaw())
}
