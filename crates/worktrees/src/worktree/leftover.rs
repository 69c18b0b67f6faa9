//! Commits what an agent left uncommitted at the end of a run, on the branch of its workflow.

use coracle_lifecycle::RepoStatus;
use coracle_types::WorkflowId;
use coracle_types::failure::{Failure, Result};

use super::WorktreeManager;
use super::git_in_container::Workdir;
use crate::leftover::{Author, Leftover};

/// The subject of the commit.
const MESSAGE: &str = "Commit what the agent left uncommitted";

impl WorktreeManager {
    /// Commits everything that git does not ignore. Does nothing on a branch other than the workflow's own, and with
    /// files in conflict, which only their author can resolve.
    ///
    /// # Errors
    /// `worktree_missing`, `sandbox_lost`.
    pub async fn commit_leftover(&self, at: &Workdir, id: &WorkflowId, author: &Author) -> Result<Leftover> {
        let workflow = self.workflow(at, id)?;
        let status = self.status(at, id).await?;
        let files = status.uncommitted();
        if files == 0 {
            return Ok(Leftover::Nothing);
        }
        if let Some(reason) = obstacle(&status, &workflow.branch) {
            return Ok(Leftover::Kept { reason, files });
        }
        let uncommitted = |err: Failure| Leftover::Kept { reason: err.message, files };
        let tree = at.tree(id).authored(author);
        let add = tree.printed(&["add", "--all"]).await;
        let commit = ["commit", "--quiet", "--no-verify", "--no-gpg-sign", "--message", MESSAGE];
        if let Err(err) = match add {
            Ok(_) => tree.printed(&commit).await,
            err => err,
        } {
            return Ok(uncommitted(err));
        }
        let commit = at.tree(id).commit("HEAD").await?.unwrap_or_default();
        Ok(Leftover::Committed { commit, files, branch: workflow.branch })
    }
}

/// Returns why nothing can be committed.
fn obstacle(status: &RepoStatus, branch: &str) -> Option<String> {
    if status.unmerged > 0 {
        return Some(format!("{} of them are in conflict", status.unmerged));
    }
    let here = status.branch.as_deref();
    (here != Some(branch)).then(|| match here {
        Some(other) => format!("`{other}` is checked out and not the workflow's branch `{branch}`"),
        None => format!("no branch is checked out; the workflow's is `{branch}`"),
    })
}
