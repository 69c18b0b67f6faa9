//! `worktree_create`: a repository's worktree in the sandbox of a workflow (sandbox.md 2.3).

use coracle_runtime::random_hex;
use coracle_sandbox::WorkflowId;
use coracle_sandbox::worktree::{CreateAsk, Repo, SetupAsk, Worktree};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Profile, Workflow, open};
use crate::context::Context;
use crate::failure::Failure;
use crate::op::Operation;

/// Give a workflow a branch and a directory of its own, in a sandbox of its own: the repository is fetched to this host once,
/// and what the sandbox lacks of it goes in. Said again for the same workflow it gives what is there.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Create {
    /// The repository: a URL, or a directory beneath the working directory or another allowed one.
    source: String,
    /// The workflow's id; made up when missing. 1 to 63 of a-z, 0-9, `.`, `_` and `-`.
    workflow: Option<Workflow>,
    /// What to begin from: a branch of the repository, a tag or a commit; its HEAD when missing.
    base: Option<String>,
    /// The branch; the prefix and the workflow's id when missing.
    branch: Option<String>,
    /// The kind of sandbox; `default` when missing.
    profile: Option<Profile>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Created {
    workflow: WorkflowId,
    #[serde(flatten)]
    worktree: Worktree,
    repository: Repo,
}

impl Operation for Create {
    const NAME: &'static str = "worktree_create";
    type Answer = Created;

    async fn run(self, cx: &Context) -> Result<Created, Failure> {
        let made_up = || WorkflowId::parse(format!("w-{}", random_hex::<4>())).map(Workflow);
        let workflow = self.workflow.map_or_else(made_up, Ok)?;
        let (home, open) = open(cx, self.profile, &workflow).await?;
        let ask = SetupAsk { source: self.source, replace: false };
        let repository =
            cx.unless_cancelled(async { Ok(home.worktrees.setup_repo(&open.inside, &ask).await?) }).await?;
        let ask = CreateAsk { base: self.base, branch: self.branch, ..CreateAsk::new(workflow.0.clone()) };
        let worktree = home.worktrees.create(&open.inside, &ask).await?;
        Ok(Created { workflow: workflow.0, worktree, repository })
    }
}
