//! Workflows for agents: tools that start another agent in a sandbox, and look after it.

mod apply;
mod cancel;
mod diff;
mod events;
mod exec;
mod result;
mod start;
mod status;

pub(crate) use self::apply::WorkflowApply;
pub(crate) use self::cancel::WorkflowCancel;
pub(crate) use self::diff::WorkflowDiff;
pub(crate) use self::events::WorkflowEvents;
pub(crate) use self::exec::WorkflowExec;
pub(crate) use self::result::WorkflowResult;
pub(crate) use self::start::WorkflowStart;
pub(crate) use self::status::WorkflowStatus;
use crate::worktree::Workflow;

use std::sync::Arc;

use coracle_context::config::CrossSession;
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_prepare::process::Process;
use coracle_prepare::sandbox::{open, sandboxes, worktrees};
use coracle_sandbox::{OpenSandbox, RunRecord, RunRecords, RunState, SandboxDir, SandboxHandle, SandboxKey};
use coracle_types::WorkflowId;

/// A workflow whose sandbox is ready.
struct OpenWorkflow {
    sandbox: Arc<SandboxHandle>,
    open: OpenSandbox,
    run: RunRecord,
}

impl OpenWorkflow {
    /// Finds it, and starts a sandbox that was stopped. A sandbox that was removed is not made again.
    async fn find(process: &Process, workflow: &Workflow) -> Result<Self, Failure> {
        let (sandbox, _, run) = find(process, workflow).await?;
        if !sandbox.worktrees.remembered(sandbox.key.as_str())?.contains(&workflow.0) {
            let message = format!("The sandbox of `{}` was removed, and its worktree with it.", workflow.0);
            let failure = Failure::new(Code::WorktreeMissing, message).detail("state", run.state);
            return Err(failure.hint_for(
                "`workflow_start` starts the task again; the user finds saved work with `coracle saved list`",
                "`coracle saved list` shows what was saved",
            ));
        }
        let open = open(&process.context, &sandbox).await?;
        Ok(Self { sandbox, open, run })
    }
}

/// Refuses an operation on work that is still in progress.
fn has_ended(run: &RunRecord) -> Result<(), Failure> {
    if run.state != RunState::Running {
        return Ok(());
    }
    let failure = Failure::new(Code::Busy, format!("The agent of `{}` still works.", run.workflow));
    Err(failure.hint("`workflow_events` with `timeout` waits for it; `workflow_cancel` ends it"))
}

/// The last run of a workflow, and its sandbox. An agent sees those that it started; the user sees all.
async fn find(process: &Process, workflow: &Workflow) -> Result<(Arc<SandboxHandle>, RunRecords, RunRecord), Failure> {
    let cx = &process.context;
    let all = cx.cross_session() == CrossSession::All;
    for record in SandboxDir::all(&sandboxes(cx)?)? {
        let dir = SandboxDir::open(&sandboxes(cx)?, &record.key)?;
        let runs = RunRecords::new(&dir, &workflow.0);
        if let Some(run) = runs.last()?.filter(|it| all || it.session == cx.call.session) {
            return Ok((process.sandboxes().of_key(&record.key, &record.profile).await?, runs, run));
        }
    }
    let message = format!("No workflow `{}` was started.", workflow.0);
    Err(Failure::new(Code::WorktreeMissing, message).hint("`workflow_start` starts one"))
}

/// The sandbox of a workflow that is there, as a port is forwarded into it. The user's may have had no agent yet.
pub(crate) async fn workflow_sandbox(process: &Process, workflow: &Workflow) -> Result<Arc<SandboxHandle>, Failure> {
    let cx = &process.context;
    if cx.cross_session() == CrossSession::All {
        for record in SandboxDir::all(&sandboxes(cx)?)? {
            if worktrees(cx)?.remembered(record.key.as_str())?.contains(&workflow.0) {
                let sandbox = process.sandboxes().of_key(&record.key, &record.profile).await?;
                open(cx, &sandbox).await?;
                return Ok(sandbox);
            }
        }
    }
    Ok(OpenWorkflow::find(process, workflow).await?.sandbox)
}

/// Whether a sandbox is there and has that workflow.
pub(crate) fn has_workflow(cx: &Context, sandbox: &SandboxKey, id: &WorkflowId) -> Result<bool, Failure> {
    let is_there = SandboxDir::all(&sandboxes(cx)?)?.iter().any(|it| it.key == *sandbox);
    Ok(is_there && worktrees(cx)?.remembered(sandbox.as_str())?.contains(id))
}
