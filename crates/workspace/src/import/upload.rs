//! Copies files of the host into a workspace, all or nothing.

use coracle_protocol::workspace::{StagedFile, WorkspaceError, WorkspaceErrorCode, WorkspaceOp, WorkspaceReply};
use coracle_runtime::Baseline;
use coracle_types::random_hex;
use tokio::sync::mpsc;

use super::read::read_all;
use super::{HostMount, ImportError};
use crate::GuestFs;

/// Batches that are read ahead.
const AHEAD: usize = 2;

/// Copies directories of the host into a workspace that is not in use yet. Its user owns the files.
///
/// # Errors
/// [`ImportError`]; then the workspace is as it was.
pub async fn import(files: &GuestFs, mounts: Vec<HostMount>) -> Result<Baseline, ImportError> {
    if mounts.is_empty() {
        return Ok(Baseline::default());
    }
    let (send, mut batches) = mpsc::channel::<Vec<StagedFile>>(AHEAD);
    let reading = tokio::task::spawn_blocking(move || read_all(&mounts, &mut |it| send.blocking_send(it).is_ok()));
    let stage = format!(".coracle-{}.tmp", random_hex::<8>());
    let mut begins = true;
    let mut refused = None;
    while let Some(batch) = batches.recv().await {
        let act = WorkspaceOp::Stage { stage: stage.clone(), begins, files: batch };
        begins = false;
        match files.request(act).await {
            Ok(WorkspaceReply::Staged) => {}
            other => {
                refused = Some(other);
                break;
            }
        }
    }
    drop(batches);
    if let Some(other) = refused {
        // The reader fails with the closed channel; ignore its error.
        let _ = reading.await;
        return Err(unplaced(other));
    }
    let baseline = reading.await.map_err(|err| ImportError::Inside(err.to_string()))??;
    match files.request(WorkspaceOp::Unstage { stage }).await {
        Ok(WorkspaceReply::Staged) => Ok(baseline),
        other => Err(unplaced(other)),
    }
}

fn unplaced(done: coracle_types::Result<WorkspaceReply>) -> ImportError {
    match done {
        Ok(WorkspaceReply::Not(WorkspaceError { code: WorkspaceErrorCode::Full, .. })) => {
            ImportError::Inside("there is no space left in the workspace".into())
        }
        Ok(WorkspaceReply::Not(trouble)) => ImportError::Inside(trouble.detail),
        Ok(_) => ImportError::Inside("the guest gave another answer".into()),
        Err(err) => err.into(),
    }
}
