//! Checkpoints after calls: each call that may change the files of a container is a step that can be undone.

use coracle_lifecycle::Record;
use coracle_runtime::{CheckpointOutcome, CheckpointRequest};
use coracle_types::{Capability, RecordId};

use crate::config::StepCheckpoints;
use crate::context::{Context, Frontend};

/// Saves a checkpoint of each container that a call has used, if the configuration says so and the engine can. A server
/// saves it after it has answered.
pub async fn after_call(cx: &Context, note: &str) {
    let used = cx.take_used();
    if cx.config.checkpoints.steps == StepCheckpoints::Off {
        return;
    }
    for record in used {
        save(cx, record, note.to_owned()).await;
    }
}

/// Waits until the checkpoint after the last call of a container is saved, unless this call is cancelled.
pub async fn settled(cx: &Context, container: &RecordId) {
    cx.call.cancel.run_until_cancelled(cx.steps().settled(container)).await;
}

async fn save(cx: &Context, record: Record, note: String) {
    if Capability::lacked_by(record.engine).contains(&Capability::Checkpoint) {
        return;
    }
    let Some(id) = record.id.clone() else { return };
    let Ok(runtime) = cx.runtime_for(record.engine, &record.endpoint) else { return };
    let Some(checkpoints) = runtime.as_checkpoints() else { return };
    if cx.config.checkpoints.steps == StepCheckpoints::Auto && !checkpoints.shares_content().await.unwrap_or(false) {
        return;
    }
    let limits = &cx.config.checkpoints;
    let request = CheckpointRequest {
        note,
        is_step: true,
        max_copied: Some(limits.max_copied.0),
        max_count: Some(limits.max_count.into()),
        max_bytes: Some(limits.max_bytes.0),
    };
    let saving = cx.steps().begin(&record.record_id);
    let save = async move {
        let _saving = saving.lock().await;
        let Some(checkpoints) = runtime.as_checkpoints() else { return };
        match checkpoints.checkpoint(&id, &request).await {
            Ok(CheckpointOutcome::TooLarge) => {
                tracing::info!(container = %record.name, "a step changed too much to be saved by itself");
            }
            Ok(CheckpointOutcome::Saved(_) | CheckpointOutcome::Unchanged(_)) => {}
            // The call has removed or stopped it, perhaps.
            Err(err) => tracing::debug!(container = %record.name, %err, "no checkpoint after a call"),
        }
    };
    match cx.call.frontend {
        Frontend::Call | Frontend::Cli => save.await,
        Frontend::Mcp | Frontend::Serve | Frontend::Ui => drop(tokio::spawn(save)),
    }
}
