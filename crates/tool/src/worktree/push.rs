//! `worktree_push`: the commits of a workflow to its remote.

use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_worktrees::changes::{PushReport, PushRequest};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Profile, Workflow, open};
use crate::dispatch::{Effect, Operation};

/// Push a workflow's branch to the repository that it came from, from this host and with the user's credential, which
/// does not go in. Only its own branch, and only forwards.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Push {
    /// The workflow's id.
    workflow: Workflow,
    /// Replace what the remote has, if nothing else was pushed there since.
    #[schemars(extend("default" = false))]
    force_with_lease: Option<bool>,
    /// The kind of sandbox; when missing, the workflow's, else `default`.
    profile: Option<Profile>,
}

impl Operation<Process> for Push {
    const NAME: &'static str = "worktree_push";
    const EFFECT: Effect = Effect::Irreversible;
    type Response = PushReport;

    async fn run(self, process: &Process) -> Result<PushReport, Failure> {
        let cx = &process.context;
        let (sandbox, open) = open(process, self.profile, &self.workflow).await?;
        cx.call.progress.message("pushing the branch from this host").await;
        let request = PushRequest { branch: None, force_with_lease: self.force_with_lease.unwrap_or(false) };
        cx.unless_cancelled(async {
            Ok(Box::pin(sandbox.worktrees.push(&open.inside, &self.workflow.0, &request)).await?)
        })
        .await
    }
}
