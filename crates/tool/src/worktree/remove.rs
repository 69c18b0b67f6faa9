//! `worktree_remove`: a workflow is over.

use std::path::PathBuf;
use std::time::Duration;

use coracle_context::document::{Document, Render, StyledText};
use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_prepare::sandbox::open_to_remove;
use coracle_sandbox::{FinalSave, RunRecords, SandboxLiveness, SandboxRemoval};
use coracle_types::WorkflowId;
use coracle_worktrees::remove::{RemovalReport, RemoveRequest, SavedWork};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Profile, Workflow};
use crate::dispatch::{Effect, Operation};

/// How long an agent has to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// Remove a workflow: its worktree, its branch, its ports, and its sandbox when no other workflow is in that. What only it
/// has is saved before; `coracle saved` shows it. One that is not there is gone already.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Remove {
    /// The workflow's id.
    workflow: Workflow,
    /// Save nothing. The user's configuration has to allow it.
    #[schemars(extend("default" = false))]
    discard: Option<bool>,
    /// Save ignored files as well.
    #[schemars(extend("default" = false))]
    salvage_ignored: Option<bool>,
    /// The kind of sandbox; when missing, the workflow's, else `default`.
    profile: Option<Profile>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct WorktreeRemoveResponse {
    workflow: WorkflowId,
    #[serde(flatten)]
    removed: Option<RemovalReport>,
    /// The sandbox is gone, too.
    sandbox_removed: bool,
    /// What was saved of the sandbox beside the workflow's work.
    also_saved: Vec<SavedWork>,
    /// What stays of the sandbox's directory on this host, since another user owns it.
    kept: Vec<PathBuf>,
}

impl Operation<Process> for Remove {
    const NAME: &'static str = "worktree_remove";
    const EFFECT: Effect = Effect::Irreversible;
    type Response = WorktreeRemoveResponse;

    async fn run(self, process: &Process) -> Result<WorktreeRemoveResponse, Failure> {
        let cx = &process.context;
        let id = self.workflow.0;
        let sandbox = process.sandboxes().with_workflow(self.profile.map(|it| it.0), &id).await?;
        let runs = RunRecords::new(sandbox.sandbox.dir(), &id);
        let _alone = runs.lock_without_agent(&cx.call.cancel, PATIENCE).await?;
        let known = sandbox.worktrees.remembered(sandbox.key.as_str())?.contains(&id);
        let (mut removed, mut save) = (None, None);
        // Files on the host outlive a container without a record, and what they hold beside workflows is saved first.
        if known || sandbox.has_files() || sandbox.sandbox.liveness().await? != SandboxLiveness::Absent {
            let open = open_to_remove(cx, &sandbox).await?;
            let request = RemoveRequest {
                discard: self.discard.unwrap_or(false),
                salvage_ignored: self.salvage_ignored.unwrap_or(false),
                save_to: sandbox.save_to()?,
            };
            removed = Some(sandbox.worktrees.remove(&open.inside, &id, &request).await?);
            runs.forget()?;
            save = Some(FinalSave { open, request });
        }
        let removal = sandbox.release(save.as_ref()).await?;
        drop(save);
        let SandboxRemoval { removed: sandbox_removed, saved, kept } = removal;
        let commits = removed.as_mut().map(|it| std::mem::take(&mut it.also_saved)).unwrap_or_default();
        let also_saved = commits.into_iter().chain(saved).collect();
        if sandbox_removed {
            // What was saved of the sandbox has that branch.
            if let Some(it) = &mut removed {
                it.kept_branch = None;
            }
            process.registry().forget(&sandbox.key).await;
        }
        Ok(WorktreeRemoveResponse { workflow: id, removed, sandbox_removed, also_saved, kept })
    }
}

impl Render for WorktreeRemoveResponse {
    fn render(&self, _: Timestamp) -> Document {
        let line = StyledText::new().name(&self.workflow);
        let removed = self.removed.as_ref().filter(|it| it.removed);
        let kept_branch = removed.and_then(|it| it.kept_branch.as_ref());
        let line = match removed.map(|it| &it.saved) {
            None => return Document::line(line.plain(" was gone already")).timed(),
            Some(None) if kept_branch.is_some() => line.plain(" removed"),
            Some(None) => line.plain(" removed; nothing was to be saved"),
            Some(Some(saved)) => line.plain(format!(" removed; its work is in {}", saved.location.display())),
        };
        let more = self.also_saved.iter().map(|it| &it.location);
        let more = more.map(|it| format!("what else the sandbox held is in {}", it.display()).into());
        let branch: Option<StyledText> = kept_branch
            .map(|it| format!("the branch {it} stays in the sandbox: its commits could not be saved").into());
        let kept = self.kept.iter().map(|it| format!("{} stays: Coracle did not create it", it.display()).into());
        Document::line(line).and_lines(more.chain(branch).chain(kept)).timed()
    }
}
