//! `workflow_exec`: a command in the worktree of a workflow, for the agent that started it.

use coracle_context::arg_types::{Script, Seconds};
use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_types::{Exec, Exit};
use coracle_worktrees::create::CreateRequest;
use schemars::JsonSchema;
use serde::Deserialize;

use super::OpenWorkflow;
use crate::commands::{ExecResponse, check_command, inline_bytes, limits, sandbox_response};
use crate::dispatch::{Effect, Operation};
use crate::worktree::Workflow;

/// Run a command in the worktree of a workflow, as its agent, also while that works. A command that fails is a successful
/// call: see `exit_code`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WorkflowExec {
    /// The workflow's id.
    workflow: Workflow,
    /// What to run: a text for `/bin/sh -c`, or a list of words that runs as it stands.
    command: Script,
    /// Seconds (or `90s`, `10m`) before it is ended.
    #[schemars(extend("default" = 300))]
    timeout: Option<Seconds>,
}

impl Operation<Process> for WorkflowExec {
    const NAME: &'static str = "workflow_exec";
    const EFFECT: Effect = Effect::Mutating;
    type Response = ExecResponse;

    async fn run(self, process: &Process) -> Result<ExecResponse, Failure> {
        let cx = &process.context;
        check_command(&cx.config, &self.command, self.timeout)?;
        let OpenWorkflow { sandbox, open, run } = OpenWorkflow::find(process, &self.workflow).await?;
        // It is there: this reads what its commands are given.
        let worktree = sandbox.worktrees.create(&open.inside, &CreateRequest::new(run.workflow)).await?;
        let inside = &open.inside;
        let mut exec = Exec::new(self.command.0, inside.agent, inside.tree_path(&worktree.id));
        exec.env = worktree.env();
        exec.limits = limits(cx, self.timeout, None);
        exec.keep_bytes = inline_bytes(cx, None);
        exec.cancel = cx.call.cancel.clone();
        exec.live = cx.call.progress.live();
        let workdir = exec.workdir.clone();
        let output = inside.link.exec(exec).await.map_err(|err| Failure::from(err).known("workflow", &worktree.id))?;
        if output.exit == Exit::Cancelled {
            return Err(Failure::cancelled().detail("tree_ended", output.tree_ended));
        }
        Ok(sandbox_response(cx, &output, worktree.id.to_string(), (inside.agent, workdir)))
    }
}
