//! `workflow_result`: what came of an agent's work.

use coracle_context::failure::Failure;
use coracle_context::warning::Warning;
use coracle_prepare::process::Process;
use coracle_sandbox::RunState;
use coracle_sandbox::protocol::Usage;
use coracle_worktrees::changes::{Commit, StrayCommits};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{OpenWorkflow, find, has_ended};
use crate::dispatch::{Effect, Operation};
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
    /// The last message of the agent; JSON where `workflow_start` had a schema.
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
}

impl Operation<Process> for WorkflowResult {
    const NAME: &'static str = "workflow_result";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = WorkflowResultResponse;

    async fn run(self, process: &Process) -> Result<WorkflowResultResponse, Failure> {
        let (sandbox, runs, run) = find(process, &self.workflow).await?;
        has_ended(&run)?;
        // The agent's result is on this host, even if its sandbox is gone.
        let (commits, uncommitted) = match work(process, &self.workflow).await {
            Ok(AgentWork { commits, uncommitted, stray }) => {
                process.context.warn(stray.map(|it| Warning::new("other_branch", it.warning().message)));
                (Some(commits), Some(uncommitted))
            }
            Err(failure) => {
                process.context.warn([Warning::new("sandbox_unavailable", failure.message.clone())]);
                (None, None)
            }
        };
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
        })
    }
}

/// What an agent left in its worktree.
struct AgentWork {
    commits: Vec<Commit>,
    /// Files that are in no commit.
    uncommitted: u64,
    stray: Option<StrayCommits>,
}

async fn work(process: &Process, workflow: &Workflow) -> Result<AgentWork, Failure> {
    let OpenWorkflow { sandbox, open, run } = OpenWorkflow::find(process, workflow).await?;
    let (worktrees, at, id) = (&sandbox.worktrees, &open.inside, &run.workflow);
    Ok(AgentWork {
        commits: worktrees.log(at, id).await?,
        uncommitted: worktrees.uncommitted_files(at, id).await?,
        stray: worktrees.stray_commits(at, id).await?,
    })
}
