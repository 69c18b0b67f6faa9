//! `worktree_list`: the worktrees of all workflows (sandbox.md 2.4).

use coracle_sandbox::worktree::Listed;
use coracle_sandbox::{Look, ProfileName, SandboxDir, Warning};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dispatch::Operation;
use crate::failure::Failure;
use crate::process::Process;
use crate::sandbox::sandboxes;

/// List the worktrees of all workflows: what each began from, and what was done since. Sandboxes that do not run are only
/// named, unless `start` is given.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// Start sandboxes that do not run, to look into them.
    #[schemars(extend("default" = false))]
    start: Option<bool>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Listing {
    worktrees: Vec<Row>,
    /// Workflows of sandboxes that were not looked into.
    stopped: Vec<Stopped>,
    count: usize,
    /// `review`: what the person's git would act on, in files that are shared, and nobody of ours wrote.
    warnings: Vec<Warning>,
}

#[derive(Debug, Serialize)]
struct Row {
    profile: ProfileName,
    #[serde(flatten)]
    listed: Listed,
}

#[derive(Debug, Serialize)]
struct Stopped {
    profile: ProfileName,
    id: String,
}

impl Operation<Process> for List {
    const NAME: &'static str = "worktree_list";
    const ACTS: bool = false;
    type Answer = Listing;

    async fn run(self, process: &Process) -> Result<Listing, Failure> {
        let cx = &process.context;
        let (mut worktrees, mut stopped, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
        for record in SandboxDir::all(&sandboxes(cx)?)? {
            let (key, profile) = (record.key, record.profile);
            let home = process.homes().of_key(cx, key, &profile).await?;
            if home.sandbox.look().await? == Look::Answers || self.start.unwrap_or(false) {
                let open = home.open(cx).await?;
                let looks = (home.worktrees.list(&open.inside), home.worktrees.review(&open.inside));
                let (rows, review) = tokio::join!(looks.0, looks.1);
                let (rows, dir) = (rows?, home.shared_at().unwrap_or_default());
                warnings.extend(
                    review?.into_iter().map(|it| Warning::new(&it.code, format!("in `{dir}`: {}", it.message))),
                );
                worktrees.extend(rows.into_iter().map(|listed| Row { profile: profile.clone(), listed }));
            } else {
                let ids = home.worktrees.remembered(home.key.as_str())?;
                stopped.extend(ids.into_iter().map(|it| Stopped { profile: profile.clone(), id: it.to_string() }));
            }
        }
        let count = worktrees.len() + stopped.len();
        Ok(Listing { worktrees, stopped, count, warnings })
    }
}
