//! `workflow_diff`: what a workflow changed, for the agent that started it.

use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_worktrees::changes::{Diff, DiffOptions};
use schemars::JsonSchema;
use serde::Deserialize;

use super::OpenWorkflow;
use crate::dispatch::{Effect, Operation};
use crate::worktree::Workflow;

/// Bytes of a patch in an answer: a model reads all of it.
const MAX_PATCH: usize = 32 << 10;

/// What a workflow changed since its base, committed or not, as a unified diff of at most 32 KiB. `omitted_files` did not
/// fit: ask for each by `path`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WorkflowDiff {
    /// The workflow's id.
    workflow: Workflow,
    /// Names and numbers alone.
    #[schemars(extend("default" = false))]
    stat: Option<bool>,
    /// One file or directory of the repository.
    path: Option<String>,
}

impl Operation<Process> for WorkflowDiff {
    const NAME: &'static str = "workflow_diff";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = Diff;

    async fn run(self, process: &Process) -> Result<Diff, Failure> {
        let OpenWorkflow { sandbox, open, run } = OpenWorkflow::find(process, &self.workflow).await?;
        let stat_only = self.stat.unwrap_or(false);
        let path = self.path.filter(|it| !it.is_empty() && it != ".");
        let options = DiffOptions { max_bytes: MAX_PATCH, stat_only, path, ..DiffOptions::default() };
        Ok(sandbox.worktrees.diff(&open.inside, &run.workflow, &options).await?)
    }
}
