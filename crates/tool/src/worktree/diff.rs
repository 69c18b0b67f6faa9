//! `worktree_diff`: what a workflow changed.

use coracle_context::arg_types::Size;
use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_types::ByteSize;
use coracle_worktrees::changes::DiffOptions;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Profile, Workflow, open};
use crate::dispatch::{Effect, Operation};

/// Show everything that a workflow changed, committed or not: files that are new are in it, ignored ones are not.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Diff {
    /// The workflow's id.
    workflow: Workflow,
    /// A commit, branch or tag to compare with; the commit that it began from when missing.
    against: Option<String>,
    /// Bytes of the patch; files that do not fit are named.
    #[schemars(with = "Option<Size>", extend("default" = 262144))]
    max_bytes: Option<ByteSize>,
    /// Names and numbers alone.
    #[schemars(extend("default" = false))]
    stat_only: Option<bool>,
    /// The kind of sandbox; when missing, the workflow's, else `default`.
    profile: Option<Profile>,
}

impl Operation<Process> for Diff {
    const NAME: &'static str = "worktree_diff";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = coracle_worktrees::changes::Diff;

    async fn run(self, process: &Process) -> Result<Self::Response, Failure> {
        let (sandbox, open) = open(process, self.profile, &self.workflow).await?;
        let usual = DiffOptions::default();
        let options = DiffOptions {
            against: self.against,
            max_bytes: self.max_bytes.map_or(usual.max_bytes, |it| usize::try_from(it.0).unwrap_or(usize::MAX)),
            stat_only: self.stat_only.unwrap_or(false),
            path: None,
        };
        Ok(sandbox.worktrees.diff(&open.inside, &self.workflow.0, &options).await?)
    }
}
