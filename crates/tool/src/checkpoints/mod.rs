//! Checkpoints: saved states of a container's files, and the way back to one.

mod checkpoint;
mod diff;
mod rewind;
mod timeline;

use std::sync::Arc;
use std::time::Duration;

use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_context::steps;
use coracle_lifecycle::{ManagedContainer, Record, Role, find as lifecycle_find};
use coracle_runtime::{Checkpoints, ContainerRuntime};
use coracle_types::{Capability, ContainerId, Handle};

pub(crate) use self::checkpoint::SaveCheckpoint;
pub(crate) use self::diff::CheckpointDiff;
pub(crate) use self::rewind::Rewind;
pub(crate) use self::timeline::Timeline;
use crate::target::{Access, reach, start_again};

/// A container whose engine can save its state.
pub(crate) struct Checkpointed {
    runtime: Arc<dyn ContainerRuntime>,
    pub(crate) record: Record,
    pub(crate) id: ContainerId,
    /// Where something is mounted, which is not saved.
    not_covered: Vec<String>,
}

impl Checkpointed {
    pub(crate) async fn reach(cx: &Context, handle: &Handle, access: Access) -> Result<Self, Failure> {
        let found = reach(cx, handle, access).await?;
        // Otherwise, the last command would not be a step yet.
        steps::settled(cx, &found.record.record_id).await;
        if found.record.role == Role::Adopted {
            let message = format!("Coracle has not created `{}`, and saves no state of it", found.record.name);
            return Err(Failure::new(Code::Unsupported, message)
                .detail("capability", Capability::Checkpoint.word())
                .hint("create a container with `create`"));
        }
        let id = found.present()?.id.clone();
        let not_covered = crate::snapshot::mounted(found.present()?);
        let ManagedContainer { runtime, record, .. } = found;
        let it = Self { runtime, record, id, not_covered };
        it.checkpoints()?;
        Ok(it)
    }

    pub(crate) fn checkpoints(&self) -> Result<&dyn Checkpoints, Failure> {
        checkpoints(&*self.runtime)
    }

    /// Makes sure that there is such a checkpoint.
    pub(crate) async fn find(&self, number: u64) -> Result<(), Failure> {
        find(&*self.runtime, &self.record, &self.id, number).await
    }
}

fn checkpoints(runtime: &dyn ContainerRuntime) -> Result<&dyn Checkpoints, Failure> {
    let (engine, capability) = (runtime.kind(), Capability::Checkpoint);
    let unsupported = coracle_types::Error::Unsupported { engine, capability };
    runtime.as_checkpoints().ok_or_else(|| {
        Failure::from(unsupported).hint("the embedded engine can: `--engine embedded`; `snapshot` saves an image")
    })
}

/// What became of a container that was stopped to change its files.
pub(crate) struct Restarted<T> {
    pub(crate) changed: Result<T, Failure>,
    /// Whether it runs again.
    pub(crate) started: Result<(), Failure>,
}

/// Stops a container, changes its files, and starts it again, also after a failure: it has the files that it had.
pub(crate) async fn while_stopped<T>(
    cx: &Context,
    runtime: &dyn ContainerRuntime,
    record: &Record,
    id: &ContainerId,
    change: impl Future<Output = Result<T, Failure>> + Send,
) -> Restarted<T> {
    let alone = async {
        let store = cx.store()?;
        // Another call would start it again.
        let _alone = store.lock(&record.name).await?;
        runtime.stop(id, Duration::ZERO).await?;
        cx.links().forget(id);
        change.await
    };
    let changed = alone.await;
    let started = async {
        let found = lifecycle_find(cx.engines(), &cx.store()?, &Handle::from(id)).await?;
        if found.present()?.running() {
            return Ok(());
        }
        Box::pin(start_again(cx, found)).await.map(drop)
    };
    Restarted { changed, started: started.await }
}

/// Makes sure that a container has such a checkpoint.
///
/// # Errors
/// `not_found` with the numbers that there are; `unsupported` on other engines.
pub(crate) async fn find(
    runtime: &dyn ContainerRuntime,
    record: &Record,
    id: &ContainerId,
    number: u64,
) -> Result<(), Failure> {
    let all = checkpoints(runtime)?.checkpoints(id).await?;
    if all.iter().any(|it| it.number == number) {
        return Ok(());
    }
    let numbers: Vec<_> = all.iter().map(|it| it.number.to_string()).collect();
    let hint = match numbers.as_slice() {
        [] => "there is none yet".to_owned(),
        numbers => format!("there are {}; `timeline` shows them", numbers.join(", ")),
    };
    let message = format!("`{}` has no checkpoint {number}", record.name);
    Err(Failure::new(Code::NotFound, message).detail("checkpoint", number).hint(hint))
}
