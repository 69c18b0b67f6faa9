//! Exports the work of a workflow.

use coracle_lifecycle::RepoStatus;
use coracle_types::failure::Result;
use coracle_types::{SandboxWarning, WorkflowId};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWrite;

use super::WorktreeManager;
use super::diff::{PLAIN, with_index};
use super::git_in_container::{Sink, Workdir};
use crate::stray_commits::no_commits;

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PatchFormat {
    /// All changes, committed or not, for `git apply`.
    Diff,
    /// The commits, for `git am`.
    Mbox,
    /// The commits, for `git fetch` into a repository that has the base commit.
    Bundle,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExportReport {
    /// Its form.
    pub format: PatchFormat,
    /// Its size.
    pub bytes: u64,
    /// The commit that it applies to.
    pub base_commit: String,
    /// `uncommitted_not_included`, `other_branch`.
    pub warnings: Vec<SandboxWarning>,
}

impl WorktreeManager {
    /// Writes the work of a workflow as a stream.
    ///
    /// # Errors
    /// `worktree_missing`; `no_commits` for a format of commits without commits; `limit_reached`.
    pub async fn export_patch(
        &self,
        at: &Workdir,
        id: &WorkflowId,
        format: PatchFormat,
        to: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<ExportReport> {
        self.export(at, id, format, Sink { to, max_bytes: self.settings.bundle_max, bytes: 0 }).await
    }

    pub(super) async fn export(
        &self,
        at: &Workdir,
        id: &WorkflowId,
        format: PatchFormat,
        sink: Sink<'_>,
    ) -> Result<ExportReport> {
        let workflow = self.workflow(at, id)?;
        let base = &workflow.base_commit;
        let mut warnings = Vec::new();
        let branch = format!("refs/heads/{}", workflow.branch);
        let tip = if format == PatchFormat::Bundle { &*branch } else { "HEAD" };
        if format == PatchFormat::Bundle && at.repo().commit(&branch).await?.is_none() {
            return Err(Box::pin(self.no_branch(at, &workflow)).await);
        }
        if format != PatchFormat::Diff && !self.has_commits(at, id, &format!("{base}..{tip}")).await? {
            let stray = self.stray_commits(at, id).await.ok().flatten();
            return Err(no_commits(
                &workflow,
                &at.workflow_arguments(id),
                stray.as_ref(),
                Some(&self.status(at, id).await?),
            ));
        }
        let output = match format {
            PatchFormat::Diff => {
                let words = [PLAIN, &["--patch", "--binary", "--full-index", base, "--"]].concat();
                with_index(at, id, async |git| git.run_into(&words, sink).await).await?
            }
            PatchFormat::Mbox => {
                warnings.extend(self.uncommitted(at, id).await?);
                let range = format!("{base}..HEAD");
                let plain = ["--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--no-signature"];
                let words =
                    [&["format-patch", "--stdout", "--binary", "--full-index", "--no-attach"], &plain[..]].concat();
                at.tree(id).run_into(&[&words[..], &["--end-of-options", &range]].concat(), sink).await?
            }
            PatchFormat::Bundle => {
                warnings.extend(self.uncommitted(at, id).await?);
                warnings.extend(self.stray_commits(at, id).await?.map(|it| it.warning()));
                at.repo().run_into(&["bundle", "create", "--quiet", "-", &branch, &format!("^{base}")], sink).await?
            }
        };
        let bytes = output.bytes;
        output.done()?;
        Ok(ExportReport { format, bytes, base_commit: workflow.base_commit, warnings })
    }

    async fn has_commits(&self, at: &Workdir, id: &WorkflowId, range: &str) -> Result<bool> {
        let first = at.tree(id).printed(&["rev-list", "--max-count=1", "--end-of-options", range]).await?;
        Ok(!first.is_empty())
    }

    async fn uncommitted(&self, at: &Workdir, id: &WorkflowId) -> Result<Option<SandboxWarning>> {
        let some = self.status(at, id).await?.uncommitted() > 0;
        Ok(some.then(|| SandboxWarning::new("uncommitted_not_included", "uncommitted changes are not included")))
    }

    /// Counts uncommitted files of a worktree.
    ///
    /// # Errors
    /// `worktree_missing`, `sandbox_lost`.
    pub async fn uncommitted_files(&self, at: &Workdir, id: &WorkflowId) -> Result<u64> {
        Ok(self.status(at, id).await?.uncommitted())
    }

    pub(super) async fn status(&self, at: &Workdir, id: &WorkflowId) -> Result<RepoStatus> {
        let git = at.tree(id).without_filters().await?;
        Ok(RepoStatus::parse(&git.printed(RepoStatus::COMMAND).await?))
    }
}
