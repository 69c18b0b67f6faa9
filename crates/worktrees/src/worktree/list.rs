//! Lists the worktrees of a sandbox with their states.

use coracle_lifecycle::RepoStatus;
use coracle_types::failure::{Code, Result};
use coracle_types::{SandboxWarning, WorkflowId};
use futures_util::stream::{self, StreamExt as _};
use serde::Serialize;

use super::WorktreeManager;
use super::git_in_container::Workdir;
use super::mirror::ORIGIN;
use crate::workflow_records::Workflow;

/// Maximum number of worktrees that are inspected concurrently.
const MAX_CONCURRENT: usize = 4;

/// The state of a worktree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorktreeStatus {
    /// The workflow.
    pub id: WorkflowId,
    /// Its directory inside.
    pub path: String,
    /// The checked-out branch; none for a detached HEAD. Of a missing worktree: its own.
    pub branch: Option<String>,
    /// Its base.
    pub base: String,
    /// The checked-out commit.
    pub head: Option<String>,
    /// Commits that the base's branch lacks.
    pub ahead: u64,
    /// Commits of the base's branch that it lacks.
    pub behind: u64,
    /// Tracked files differ from the commit.
    pub dirty: bool,
    /// Files that are neither tracked nor ignored.
    pub untracked: u64,
    /// Commits that no branch of the remote has.
    pub unpushed: u64,
    /// Its directory is missing, or git cannot read it.
    pub missing: bool,
    /// Seconds since 1970.
    pub last_commit_at: Option<i64>,
    /// First and last of its 20 ports.
    pub ports: (u16, u16),
    /// The Compose project for its services.
    pub compose_project: String,
}

/// The worktrees of a sandbox.
#[derive(Debug)]
pub struct WorktreeListing {
    /// By id.
    pub listed: Vec<WorktreeStatus>,
    /// Workflows whose records are damaged, or of a newer version.
    pub warnings: Vec<SandboxWarning>,
}

impl WorktreeManager {
    /// Lists all worktrees of a sandbox, by id.
    ///
    /// # Errors
    /// `git_missing`, `sandbox_lost`.
    pub async fn list(&self, at: &Workdir) -> Result<WorktreeListing> {
        let mut warnings = Vec::new();
        let records = self.records(at)?;
        let mut workflows = Vec::new();
        for id in records.ids()? {
            match records.workflow(&id) {
                Ok(workflow) => workflows.extend(workflow),
                Err(failure) => warnings.push(SandboxWarning::new(&failure.code.word(), failure.message.clone())),
            }
        }
        let inspections = stream::iter(workflows).map(|it| inspect_worktree(at, it)).buffered(MAX_CONCURRENT);
        let listed = inspections.collect::<Vec<_>>().await.into_iter().collect::<Result<_>>()?;
        Ok(WorktreeListing { listed, warnings })
    }
}

async fn inspect_worktree(at: &Workdir, it: Workflow) -> Result<WorktreeStatus> {
    let git = at.tree(&it.id);
    let both = format!("{ORIGIN}{}...HEAD", it.base);
    let from_commit = format!("{}...HEAD", it.base_commit);
    let count = ["rev-list", "--left-right", "--count", "--end-of-options", &both];
    let counted = ["rev-list", "--left-right", "--count", "--end-of-options", &from_commit];
    let unpushed = ["rev-list", "--count", "HEAD", "--not", "--remotes=origin"];
    let last = ["log", "-1", "--no-show-signature", "--format=%ct"];
    let git = match git.without_filters().await {
        Ok(git) => git,
        Err(err) if err.code == Code::WorktreeMissing => return Ok(worktree_status(at, it, None)),
        Err(err) => return Err(err),
    };
    let (status, counts, from_commit, unpushed, last) = tokio::join!(
        git.run(RepoStatus::COMMAND),
        git.run(&count),
        git.run(&counted),
        git.run(&unpushed),
        git.run(&last)
    );
    let status = match status {
        Ok(it) if it.ok() => RepoStatus::parse(&it.stdout),
        Err(err) if err.code != Code::WorktreeMissing => return Err(err),
        _ => return Ok(worktree_status(at, it, None)),
    };
    // A base that is a tag or a commit has no branch to fall behind.
    let counts = Some(counts?).filter(super::git_in_container::GitOutput::ok).map_or(from_commit, Ok)?;
    let numbers = |output: &[u8]| -> Vec<i64> {
        String::from_utf8_lossy(output).split_whitespace().filter_map(|it| it.parse().ok()).collect()
    };
    let (counts, unpushed, last) = (numbers(&counts.stdout), numbers(&unpushed?.stdout), numbers(&last?.stdout));
    let count = |of: &[i64], at: usize| of.get(at).map_or(0, |it| it.unsigned_abs());
    let mut seen = worktree_status(at, it, Some(status));
    (seen.behind, seen.ahead) = (count(&counts, 0), count(&counts, 1));
    (seen.unpushed, seen.last_commit_at) = (count(&unpushed, 0), last.first().copied());
    Ok(seen)
}

fn worktree_status(at: &Workdir, it: Workflow, status: Option<RepoStatus>) -> WorktreeStatus {
    let ports = it.ports();
    let missing = status.is_none();
    let mut status = status.unwrap_or_default();
    if missing {
        status.branch = Some(it.branch.clone());
    }
    WorktreeStatus {
        path: at.tree_path(&it.id).to_string(),
        id: it.id,
        branch: status.branch,
        base: it.base,
        head: status.head,
        ahead: 0,
        behind: 0,
        dirty: status.dirty > 0,
        untracked: status.untracked,
        unpushed: 0,
        missing,
        last_commit_at: None,
        ports: (ports.start, ports.end - 1),
        compose_project: it.compose_project,
    }
}
