//! Worktrees of workflows, each an operation of its own: `coracle worktree …` (sandbox.md 2).

mod apply;
mod create;
mod diff;
mod export;
mod list;
mod push;
mod remove;

use std::sync::Arc;

use coracle_sandbox::{ProfileName, WorkflowId};
use schemars::JsonSchema;
use serde::Deserialize;

use super::home::{Home, Open};
use crate::context::Context;
use crate::failure::Failure;
use crate::op::Entry;

/// The operations, in the order in which a workflow meets them.
pub(crate) const ALL: &[Entry] = &[
    Entry::of::<create::Create>(),
    Entry::of::<list::List>(),
    Entry::of::<diff::Diff>(),
    Entry::of::<export::Export>(),
    Entry::of::<apply::Apply>(),
    Entry::of::<push::Push>(),
    Entry::of::<remove::Remove>(),
];

/// What every name of an operation begins with, which the command line leaves out.
pub(crate) const PREFIX: &str = "worktree_";

/// The kind of sandbox that nobody has to name.
pub(super) fn usual_profile() -> ProfileName {
    ProfileName::parse("default").expect("the word follows the grammar")
}

/// A profile's name in a call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Profile(#[schemars(with = "String")] pub(super) ProfileName);

/// A workflow's id in a call.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Workflow(#[schemars(with = "String")] pub(super) WorkflowId);

/// The sandbox of a workflow, ready.
pub(super) async fn open(
    cx: &Context,
    profile: Option<Profile>,
    workflow: &Workflow,
) -> Result<(Arc<Home>, Open), Failure> {
    let profile = profile.map_or_else(usual_profile, |it| it.0);
    let home = cx.homes().of(cx, &profile, &workflow.0).await?;
    let open = home.open(cx).await?;
    Ok((home, open))
}
