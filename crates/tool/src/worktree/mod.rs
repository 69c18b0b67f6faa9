//! Worktrees of workflows, each an operation of its own: `coracle worktree …`.

mod apply;
mod create;
mod diff;
mod export;
mod list;
mod push;
mod remove;

use std::path::Path;
use std::sync::Arc;

use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_prepare::process::Process;
use coracle_prepare::sandbox::opened;
use coracle_sandbox::{OpenSandbox, SandboxHandle};
use coracle_types::{ProfileName, WorkflowId};
use coracle_worktrees::create::SourceChanges;
use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use self::apply::CheckoutRequest;
pub use self::create::AgentWorktree;
pub(crate) use self::create::create_for_agent;
use crate::dispatch::OperationEntry;

/// The operations, in the order in which a workflow meets them.
pub static ALL: &[OperationEntry] = &[
    OperationEntry::for_process::<create::Create>(),
    OperationEntry::for_process::<list::List>(),
    OperationEntry::for_process::<diff::Diff>(),
    OperationEntry::for_process::<export::Export>(),
    OperationEntry::for_process::<apply::Apply>(),
    OperationEntry::for_process::<push::Push>(),
    OperationEntry::for_process::<remove::Remove>(),
];

/// What every name of an operation begins with, which the command line leaves out.
pub const PREFIX: &str = "worktree_";

/// A profile's name in a call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Profile(#[schemars(with = "String")] pub(crate) ProfileName);

/// A workflow's id in a call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Workflow(#[schemars(with = "String")] pub(crate) WorkflowId);

/// The sandbox of a workflow that is there, ready. For an unknown name, none is created.
pub(crate) async fn open(
    process: &Process,
    profile: Option<Profile>,
    workflow: &Workflow,
) -> Result<(Arc<SandboxHandle>, OpenSandbox), Failure> {
    let cx = &process.context;
    let sandbox = process.sandboxes().with_workflow(profile.map(|it| it.0), &workflow.0).await?;
    let open = opened(cx, &sandbox, &workflow.0).await?;
    Ok((sandbox, open))
}

/// What to do with uncommitted changes of a source, by the call or the user's settings.
pub(crate) fn uncommitted(
    cx: &Context,
    requested: Option<bool>,
    source: &str,
    base: Option<&str>,
) -> Result<SourceChanges, Failure> {
    let taken = requested.unwrap_or(cx.config.sandbox.worktree.include_uncommitted && base.is_none());
    let dir = Path::new(source).canonicalize().unwrap_or_else(|_| source.into());
    let written_inside = dir.is_absolute() && cx.store()?.is_written_inside(&dir)?;
    match (written_inside, taken) {
        (false, true) => return Ok(SourceChanges::Included),
        (false, false) => return Ok(SourceChanges::Reported),
        (true, false) => return Ok(SourceChanges::Ignored),
        (true, true) => {}
    }
    // It could put a link in the way while files are read, and get what that leads to.
    let failure = Failure::new(Code::PolicyDenied, format!("a container can write in `{}`", dir.display()));
    Err(failure.detail("rule", "worktree.bound").hint("commit first, or remove that container"))
}
