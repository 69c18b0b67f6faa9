//! `workflow_status`: the state of an agent's work.

use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_prepare::sandbox::open;
use coracle_sandbox::protocol::Usage;
use coracle_sandbox::{RunState, SandboxLiveness};
use coracle_types::ProfileName;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::find;
use crate::dispatch::{Effect, Operation};
use crate::worktree::Workflow;

/// How a workflow stands: whether its agent works, and what it used.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WorkflowStatus {
    /// The workflow's id.
    workflow: Workflow,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct WorkflowStatusResponse {
    state: RunState,
    run_id: String,
    profile: ProfileName,
    branch: String,
    model: String,
    /// The task, for the user. An agent that started the workflow wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<String>,
    began: Timestamp,
    ended: Option<Timestamp>,
    /// As the worker tells it.
    usage: Option<Usage>,
    /// As the proxy counted it, which budgets go by.
    metered: Value,
    /// Work is not committed. Missing while the sandbox does not run.
    dirty: Option<bool>,
    code: Option<String>,
    message: Option<String>,
}

impl Operation<Process> for WorkflowStatus {
    const NAME: &'static str = "workflow_status";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = WorkflowStatusResponse;

    async fn run(self, process: &Process) -> Result<WorkflowStatusResponse, Failure> {
        let cx = &process.context;
        let (sandbox, _, run) = find(process, &self.workflow).await?;
        let mut dirty = None;
        if sandbox.sandbox.liveness().await? == SandboxLiveness::Ready {
            let open = open(cx, &sandbox).await?;
            let listed = sandbox.worktrees.list(&open.inside).await?.listed;
            dirty = listed.iter().find(|it| it.id == self.workflow.0).map(|it| it.dirty || it.untracked > 0);
        }
        Ok(WorkflowStatusResponse {
            state: run.state,
            run_id: run.run_id,
            profile: run.profile,
            branch: run.branch,
            model: run.model,
            prompt: run.prompt.filter(|_| cx.call.frontend.is_of_person()),
            began: run.began,
            ended: run.ended,
            usage: run.usage,
            metered: serde_json::to_value(sandbox.metered()).unwrap_or_default(),
            dirty,
            code: run.code,
            message: run.message,
        })
    }
}
