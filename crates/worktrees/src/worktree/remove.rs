//! Removes worktrees, after their unsaved work is saved and checked.

use coracle_types::WorkflowId;
use coracle_types::failure::{Code, Failure, Result};
use serde::Serialize;

use super::WorktreeManager;
use super::git_in_container::Workdir;
use super::item_save::SavedWork;
use super::save::{WorktreeSave, not_saved};
use crate::processes::WorktreeProcesses;
use crate::repository_source::branch_of;
use crate::workflow_records::Workflow;
use crate::worktree::remove_request::RemoveRequest;

/// How often the work is saved, if processes are started in the worktree meanwhile.
const MAX_SAVES: u32 = 3;

/// The result of a removal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RemovalReport {
    /// The workflow.
    pub id: WorkflowId,
    /// Whether it existed.
    pub removed: bool,
    /// Its saved work.
    pub saved: Option<SavedWork>,
    /// The checked-out branch, if it stays in the repository inside because git could not save its commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_branch: Option<String>,
    /// Its commits, if they are saved separately from its files. The caller reports them with other saves.
    #[serde(skip)]
    pub also_saved: Vec<SavedWork>,
}

impl WorktreeManager {
    /// Ends processes in a worktree, saves its unsaved work, then removes it with its branch, and frees its ports. A
    /// missing worktree is no failure.
    ///
    /// # Errors
    /// `save_failed` and `busy`: nothing was removed; `policy_denied` for `discard` without permission.
    pub async fn remove(&self, at: &Workdir, id: &WorkflowId, request: &RemoveRequest) -> Result<RemovalReport> {
        self.may_discard(request)?;
        let records = self.records(at)?;
        let _lock = records.lock(&format!("workflow-{id}")).await?;
        let Some(workflow) = records.workflow_to_remove(id, || {
            let branch = branch_of(&self.settings.branch_prefix, id, None)?;
            Ok(Workflow::without_record(&at.key, id, branch.to_string()))
        })?
        else {
            let (saved, also_saved) = (None, Vec::new());
            return Ok(RemovalReport { id: id.clone(), removed: false, saved, kept_branch: None, also_saved });
        };
        let save = self.save_at_rest(at, &workflow, request).await?;
        let listing = records.lock("worktrees").await?;
        self.take_away(at, &workflow, save.kept_branch.is_some()).await?;
        drop(listing);
        records.forget(id)?;
        let WorktreeSave { works, kept_branch } = save;
        let mut works = works.into_iter();
        let (saved, also_saved) = (works.next(), works.collect());
        Ok(RemovalReport { id: id.clone(), removed: true, saved, kept_branch, also_saved })
    }

    /// Ends processes in a worktree and saves its work, until none was started meanwhile.
    async fn save_at_rest(&self, at: &Workdir, workflow: &Workflow, request: &RemoveRequest) -> Result<WorktreeSave> {
        let (link, tree) = (&at.link, at.tree_path(&workflow.id));
        let processes = WorktreeProcesses { link, agent: at.agent, tree, workflow: &workflow.id };
        for _ in 0..MAX_SAVES {
            processes.end().await?;
            if request.discard {
                return Ok(WorktreeSave::default());
            }
            let save = self.save(at, workflow, request).await.map_err(not_saved)?;
            // An unchanged state is not saved twice.
            if !processes.exist().await? {
                return Ok(save);
            }
        }
        let message = format!("Commands are started in `{}` again and again; nothing was removed.", workflow.id);
        Err(Failure::new(Code::Busy, message).hint("stop what starts them, then try again"))
    }

    pub(super) fn may_discard(&self, request: &RemoveRequest) -> Result<()> {
        if request.discard && !self.settings.allow_discard {
            let failure = Failure::new(Code::PolicyDenied, "Work may not be discarded here.");
            return Err(failure.detail("rule", "discard").detail("setting", "security.allow_discard"));
        }
        Ok(())
    }

    async fn take_away(&self, at: &Workdir, workflow: &Workflow, keeps_branch: bool) -> Result<()> {
        let id = &workflow.id;
        // Removed by the guest, independent of git.
        at.remove(&format!("worktrees/{id}")).await?;
        at.remove(&format!("repo.git/worktrees/{id}")).await?;
        if keeps_branch {
            return Ok(());
        }
        let deletes = format!("refs/heads/{}", workflow.branch);
        at.repo().run(&["update-ref", "-d", &deletes]).await.map(drop)
    }
}
