//! Workflows for agents: tools that start another agent in a sandbox, and look after it (sandbox.md 7).

mod cancel;
mod events;
mod start;
mod status;

pub(crate) use self::cancel::WorkflowCancel;
pub(crate) use self::events::WorkflowEvents;
pub(crate) use self::start::WorkflowStart;
pub(crate) use self::status::WorkflowStatus;
use super::worktree::Workflow;
use crate::config::CrossSession;
use crate::failure::{Code, Failure};
use crate::process::Process;
use crate::sandbox::sandboxes;

use std::sync::Arc;

use coracle_sandbox::{RunRecord, RunRecords, SandboxDir, SandboxHandle};

/// The last run of a workflow, and its sandbox. An agent sees those that it started; the person sees all.
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
