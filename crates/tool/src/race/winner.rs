//! Gives a container the files of the attempt that won.

use std::time::Duration;

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_lifecycle::ManagedContainer;
use coracle_runtime::{CheckpointOutcome, CheckpointRequest, Checkpoints};
use coracle_types::{ContainerId, ContainerName, Handle};

use crate::checkpoints::{Restarted, while_stopped};
use crate::target::{Access, reach, start_again};

/// Exchanges the files of the container and of the copy, which both stop. The container starts again, also after a failure.
/// Returns the checkpoint with the files that it had before.
pub(super) async fn take_files(
    cx: &Context,
    parent: &ManagedContainer,
    copy: &ContainerName,
) -> Result<Restarted<u64>, Failure> {
    let id = parent.present()?.id.clone();
    let found = reach(cx, &Handle::Name(copy.clone()), Access::Destroy).await?;
    let copy = found.present()?.id.clone();
    let checkpoints = parent.runtime.as_checkpoints().ok_or_else(|| Failure::internal("no checkpoints"))?;
    let exchange = async {
        parent.runtime.stop(&copy, Duration::ZERO).await?;
        cx.links().forget(&copy);
        // What was done since the race began is saved, too.
        let before = save(checkpoints, &id, "before the files of a race").await?;
        checkpoints.exchange_files(&id, &copy).await?;
        Ok(before)
    };
    let restarted = while_stopped(cx, &*parent.runtime, &parent.record, &id, exchange).await;
    if restarted.changed.is_err() {
        // The copy stays, to be looked at.
        Box::pin(start_again(cx, found)).await?;
    }
    Ok(restarted)
}

/// Saves the files without limits: a limit would remove the oldest checkpoints. Returns the number.
pub(super) async fn save(checkpoints: &dyn Checkpoints, id: &ContainerId, note: &str) -> Result<u64, Failure> {
    let request = CheckpointRequest { note: note.to_owned(), is_step: true, ..CheckpointRequest::default() };
    match checkpoints.checkpoint(id, &request).await? {
        CheckpointOutcome::Saved(saved) => Ok(saved.number),
        CheckpointOutcome::Unchanged(number) => Ok(number),
        CheckpointOutcome::TooLarge => Err(Failure::internal("a checkpoint without a limit was too large")),
    }
}
