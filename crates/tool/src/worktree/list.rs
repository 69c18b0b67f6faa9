//! `worktree_list`: the worktrees of all workflows.

use coracle_context::document::{Column, Document, Render, StyledText, joined};
use coracle_context::failure::Failure;
use coracle_context::humanize::ago;
use coracle_prepare::process::Process;
use coracle_prepare::sandbox::{open, sandboxes};
use coracle_sandbox::protocol::Usage;
use coracle_sandbox::{RunRecord, RunRecords, RunState, SandboxDir, SandboxHandle, SandboxLiveness};
use coracle_types::{ProfileName, SandboxWarning, WorkflowId};
use coracle_worktrees::list::WorktreeStatus;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};

/// List the worktrees of all workflows: what each began from, and what was done since. Sandboxes that do not run are only
/// named, unless `start` is given.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct List {
    /// Start sandboxes that do not run, to look into them.
    #[schemars(extend("default" = false))]
    start: Option<bool>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct WorktreeListResponse {
    worktrees: Vec<WorktreeRow>,
    /// Workflows of sandboxes that were not looked into.
    stopped: Vec<StoppedWorkflow>,
    count: usize,
    /// `review`: changes in shared files that the user's git would act on, and that Coracle did not write. Others are of
    /// workflows whose records cannot be read.
    warnings: Vec<SandboxWarning>,
}

#[derive(Debug, Serialize)]
struct WorktreeRow {
    profile: ProfileName,
    #[serde(flatten)]
    listed: WorktreeStatus,
    /// The last run of an agent; missing if there was none.
    run: Option<RunSummary>,
}

#[derive(Debug, Serialize)]
struct StoppedWorkflow {
    profile: ProfileName,
    id: String,
    run: Option<RunSummary>,
}

/// The last run of a workflow, as `workflow_status` reports it in full.
#[derive(Debug, Serialize)]
struct RunSummary {
    state: RunState,
    branch: String,
    model: String,
    /// The beginning of the task.
    prompt: Option<String>,
    began: Timestamp,
    ended: Option<Timestamp>,
    usage: Option<Usage>,
    metered: Value,
}

/// Characters of a task in the list.
const PROMPT: usize = 200;

impl RunSummary {
    fn new(run: RunRecord, sandbox: &SandboxHandle) -> Self {
        Self {
            state: run.state,
            branch: run.branch,
            model: run.model,
            prompt: run.prompt.map(|it| it.chars().take(PROMPT).collect()),
            began: run.began,
            ended: run.ended,
            usage: run.usage,
            metered: serde_json::to_value(sandbox.metered()).unwrap_or_default(),
        }
    }
}

/// The last run of a workflow. A record that cannot be read is a warning, and the workflow is listed without it.
fn last_run(sandbox: &SandboxHandle, id: &WorkflowId, warnings: &mut Vec<SandboxWarning>) -> Option<RunSummary> {
    match RunRecords::new(sandbox.sandbox.dir(), id).last() {
        Ok(run) => run.map(|run| RunSummary::new(run, sandbox)),
        Err(failure) => {
            warnings.push(SandboxWarning::new(&failure.code.word(), format!("run of `{id}`: {}", failure.message)));
            None
        }
    }
}

impl Operation<Process> for List {
    const NAME: &'static str = "worktree_list";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = WorktreeListResponse;

    async fn run(self, process: &Process) -> Result<WorktreeListResponse, Failure> {
        let cx = &process.context;
        let (mut worktrees, mut stopped, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
        for record in SandboxDir::all(&sandboxes(cx)?)? {
            let (key, profile) = (record.key, record.profile);
            let sandbox = process.sandboxes().of_key(&key, &profile).await?;
            if sandbox.sandbox.liveness().await? == SandboxLiveness::Ready || self.start.unwrap_or(false) {
                let open = open(cx, &sandbox).await?;
                let looks = (sandbox.worktrees.list(&open.inside), sandbox.worktrees.review(&open.inside));
                let (rows, review) = tokio::join!(looks.0, looks.1);
                let (listing, dir) = (rows?, sandbox.shared_at().unwrap_or_default());
                warnings.extend(listing.warnings);
                warnings.extend(
                    review?.into_iter().map(|it| SandboxWarning::new(&it.code, format!("in `{dir}`: {}", it.message))),
                );
                for listed in listing.listed {
                    let run = last_run(&sandbox, &listed.id, &mut warnings);
                    worktrees.push(WorktreeRow { profile: profile.clone(), listed, run });
                }
            } else {
                for id in sandbox.worktrees.remembered(sandbox.key.as_str())? {
                    let run = last_run(&sandbox, &id, &mut warnings);
                    stopped.push(StoppedWorkflow { profile: profile.clone(), id: id.to_string(), run });
                }
            }
        }
        let count = worktrees.len() + stopped.len();
        Ok(WorktreeListResponse { worktrees, stopped, count, warnings })
    }
}

const COLUMNS: [Column; 7] = [
    Column::flexible("WORKFLOW"),
    Column::flexible("PROFILE"),
    Column::flexible("BRANCH").or_left_out(1),
    Column::flexible("FROM").or_left_out(2),
    Column::fixed("COMMITS"),
    Column::flexible("STATE"),
    Column::fixed("LAST COMMIT").or_left_out(3),
];

impl Render for WorktreeListResponse {
    fn render(&self, now: Timestamp) -> Document {
        if self.worktrees.is_empty() && self.stopped.is_empty() {
            return Document::line("no worktrees; `coracle worktree create SOURCE` makes one");
        }
        let row = |row: &WorktreeRow| {
            let it = &row.listed;
            let last = it.last_commit_at.and_then(|it| Timestamp::from_second(it).ok());
            let last = last.map(|it| ago(&it.to_string(), now)).unwrap_or_default();
            let commits = format!("+{} -{}", it.ahead, it.behind);
            let branch = it.branch.clone().unwrap_or_default();
            let profile = row.profile.to_string();
            [it.id.to_string(), profile, branch, it.base.clone(), commits, state(it), last].map(StyledText::from).into()
        };
        let document = match self.worktrees.as_slice() {
            [] => Document::default(),
            rows => Document::table(&COLUMNS, rows.iter().map(row).collect()),
        };
        let names = joined(self.stopped.iter().map(|it| format!("{} ({})", it.id, it.profile)));
        let stopped = StyledText::new().dim("not running").plain(format!(" {names}; `--start` looks into them"));
        document.and_lines((!names.is_empty()).then_some(stopped))
    }
}

fn state(it: &WorktreeStatus) -> String {
    if it.missing {
        return "missing".to_owned();
    }
    let changed = it.dirty.then(|| "changed".to_owned());
    let untracked = (it.untracked > 0).then(|| format!("{} new", it.untracked));
    let unpushed = (it.unpushed > 0).then(|| format!("{} unpushed", it.unpushed));
    let state = joined([changed, untracked, unpushed].into_iter().flatten());
    if state.is_empty() { "clean".to_owned() } else { state }
}
