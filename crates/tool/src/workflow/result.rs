//! `workflow_result`: what came of an agent's work (sandbox.md 7).

use coracle_sandbox::RunState;
use coracle_sandbox::protocol::Usage;
use coracle_sandbox::worktree::Commit;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{OpenWorkflow, find, has_ended};
use crate::dispatch::Operation;
use crate::failure::Failure;
use crate::process::Process;
use crate::warning::Warning;
use crate::worktree::Workflow;

/// What came of a workflow that ended: the agent's answer, its branch with the commits, and what it used.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WorkflowResult {
    /// The workflow's id.
    workflow: Workflow,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct WorkflowResultResponse {
    state: RunState,
    /// What the agent said last; JSON where `workflow_start` had a schema.
    answer: Option<Value>,
    branch: String,
    /// Newest first. Missing when the sandbox cannot be opened.
    commits: Option<Vec<Commit>>,
    /// Files that are in no commit.
    uncommitted: Option<u64>,
    model: String,
    /// As the worker tells it.
    usage: Option<Usage>,
    /// As the proxy counted it, which budgets go by.
    metered: Value,
    ended: Option<Timestamp>,
    code: Option<String>,
    message: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
}

impl Operation<Process> for WorkflowResult {
    const NAME: &'static str = "workflow_result";
    const ACTS: bool = false;
    type Response = WorkflowResultResponse;

    async fn run(self, process: &Process) -> Result<WorkflowResultResponse, Failure> {
        let (sandbox, runs, run) = find(process, &self.workflow).await?;
        has_ended(&run)?;
        // What the agent said is on this host, whatever became of its sandbox.
        let (work, warnings) = match work(process, &self.workflow).await {
            Ok(work) => (Some(work), Vec::new()),
            Err(failure) => (None, vec![Warning::new("sandbox_unavailable", failure.message.clone())]),
        };
        let (commits, uncommitted) = work.unzip();
        Ok(WorkflowResultResponse {
            state: run.state,
            answer: runs.answer()?.map(|it| it["content"].clone()),
            branch: run.branch,
            commits,
            uncommitted,
            model: run.model,
            usage: run.usage,
            metered: serde_json::to_value(sandbox.metered()).unwrap_or_default(),
            ended: run.ended,
            code: run.code,
            message: run.message,
            warnings,
        })
    }
}

/// Its commits, and how many files are in none.
async fn work(process: &Process, workflow: &Workflow) -> Result<(Vec<Commit>, u64), Failure> {
    let OpenWorkflow { sandbox, open, run } = OpenWorkflow::find(process, workflow).await?;
    let commits = sandbox.worktrees.log(&open.inside, &run.workflow).await?;
    Ok((commits, sandbox.worktrees.uncommitted_files(&open.inside, &run.workflow).await?))
}
