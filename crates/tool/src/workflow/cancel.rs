//! `workflow_cancel`: stops an agent.

use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_sandbox::RunState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::find;
use crate::dispatch::{Effect, Operation};
use crate::worktree::Workflow;

/// Stop the agent of a workflow. What it did stays in its worktree.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WorkflowCancel {
    /// The workflow's id.
    workflow: Workflow,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct WorkflowCancelResponse {
    /// Its state when the request to stop came.
    was: RunState,
}

impl Operation<Process> for WorkflowCancel {
    const NAME: &'static str = "workflow_cancel";
    const EFFECT: Effect = Effect::Mutating;
    type Response = WorkflowCancelResponse;

    async fn run(self, process: &Process) -> Result<WorkflowCancelResponse, Failure> {
        let _cx = &process.context;
        let (_, runs, run) = find(process, &self.workflow).await?;
        if run.state == RunState::Running {
            runs.request_cancel()?;
        }
        Ok(WorkflowCancelResponse { was: run.state })
    }
}
