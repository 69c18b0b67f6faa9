//! `worktree_create`: a repository's worktree in the sandbox of a workflow.

use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText, word};
use coracle_context::failure::Failure;
use coracle_context::strict;
use coracle_devcontainer::hooks::CommandRan;
use coracle_prepare::process::Process;
use coracle_prepare::sandbox::devcontainer::{WorkflowOrigin, chosen, discard_stale};
use coracle_prepare::sandbox::{apply_devcontainer, expire, open, usual_profile};
use coracle_sandbox::{DevcontainerReport, SandboxHandle, SandboxLiveness};
use coracle_types::{ProfileName, SandboxWarning, WorkflowId, random_hex};
use coracle_worktrees::create::{CreateRequest, RepositoryInfo, SetupRequest, Worktree};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Profile, Workflow};
use crate::dispatch::{Effect, Operation};

/// Give a workflow a branch and a directory of its own, in a sandbox of its own: the repository is fetched to this host
/// once, and what the sandbox lacks of it goes in. A second call for the same workflow returns the existing worktree.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Create {
    /// The repository: a URL, or a directory beneath the working directory or another allowed one; the working
    /// directory when missing.
    source: Option<String>,
    /// The workflow's id; made up when missing. 1 to 63 of a-z, 0-9, `.`, `_` and `-`.
    workflow: Option<Workflow>,
    /// What to begin from: a branch of the repository, a tag or a commit; its HEAD when missing.
    base: Option<String>,
    /// The branch; the prefix and the workflow's id when missing.
    branch: Option<String>,
    /// Begin with what is not committed in the directory, too: all but ignored files. What the configuration says when
    /// missing.
    include_uncommitted: Option<bool>,
    /// The kind of sandbox; when missing, the workflow's, else `default`.
    profile: Option<Profile>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct WorktreeCreateResponse {
    workflow: WorkflowId,
    /// Named in the command that is shown next.
    #[serde(skip)]
    profile: ProfileName,
    #[serde(flatten)]
    worktree: Worktree,
    repository: RepositoryInfo,
    /// What of the repository's `devcontainer.json` was honoured, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    devcontainer: Option<DevcontainerReport>,
}

impl Operation<Process> for Create {
    const NAME: &'static str = "worktree_create";
    const EFFECT: Effect = Effect::Mutating;
    type Response = WorktreeCreateResponse;

    async fn run(self, process: &Process) -> Result<WorktreeCreateResponse, Failure> {
        let cx = &process.context;
        let made_up = || WorkflowId::parse(format!("w-{}", random_hex::<4>())).map(Workflow);
        let workflow = self.workflow.map_or_else(made_up, Ok)?;
        let profile = self.profile.map_or_else(usual_profile, |it| it.0);
        let source_path = coracle_prepare::sandbox::source::source(cx, self.source);
        let (source, base) = (source_path.as_str(), self.base.as_deref());
        let uncommitted = crate::worktree::uncommitted(cx, self.include_uncommitted, source, base)?;
        let sandbox = process.sandboxes().of_workflow(&profile, &workflow.0).await?;
        sandbox.worktrees.expect_source(source)?;
        let beginning = WorkflowOrigin { profile: &profile, workflow: &workflow.0, source, base };
        let sandbox = discard_stale(process.sandboxes(), sandbox, &profile).await?;
        let claim = sandbox.begin().await?;
        let sandbox = process.sandboxes().with_repository(sandbox, &profile, source).await?;
        let sandbox = chosen(process.sandboxes(), sandbox, beginning).await?;
        // A sandbox that existed may hold unsaved work.
        let new = sandbox.is_new().await?;
        if sandbox.sandbox.liveness().await? == SandboxLiveness::Absent {
            // What is too old makes room for it.
            Box::pin(expire(process.sandboxes())).await;
        }
        let setup = SetupRequest { source: source_path, replace: false };
        let (base, branch) = (self.base, self.branch);
        let request = CreateRequest { base, branch, uncommitted, ..CreateRequest::new(workflow.0.clone()) };
        let made = ready(cx, &sandbox, setup, request).await;
        drop(claim);
        if made.is_err() {
            process.registry().give_up(&sandbox, new).await;
        }
        let (repository, worktree, devcontainer) = made?;
        Ok(WorktreeCreateResponse { workflow: workflow.0, profile, worktree, repository, devcontainer })
    }
}

/// Where a coding agent works.
#[derive(Clone, Debug)]
pub struct AgentWorktree {
    /// The repository: a URL or a directory; the working directory when missing.
    pub source: Option<String>,
    /// What to begin from.
    pub base: Option<String>,
    /// The workflow.
    pub workflow: WorkflowId,
}

/// Makes the worktree of an agent, or finds it.
pub(crate) async fn create_for_agent(
    process: &Process,
    at: AgentWorktree,
    profile: &ProfileName,
) -> Result<WorkflowId, Failure> {
    let AgentWorktree { source, base, workflow } = at;
    let (workflow, profile) = (Some(Workflow(workflow)), Some(Profile(profile.clone())));
    let create = Create { source, workflow, base, branch: None, include_uncommitted: None, profile };
    Ok(Box::pin(create.run(process)).await?.workflow)
}

/// A sandbox with the repository and the worktree of a workflow.
async fn ready(
    cx: &Context,
    sandbox: &SandboxHandle,
    setup: SetupRequest,
    request: CreateRequest,
) -> Result<(RepositoryInfo, Worktree, Option<DevcontainerReport>), Failure> {
    let open = open(cx, sandbox).await?;
    cx.call.progress.message("bringing the repository into the sandbox").await;
    let repository =
        cx.unless_cancelled(async { Ok(Box::pin(sandbox.worktrees.setup_repo(&open.inside, &setup)).await?) }).await?;
    cx.call.progress.message("making the worktree").await;
    let mut worktree = Box::pin(sandbox.worktrees.create(&open.inside, &request)).await?;
    worktree.warnings.extend(open.warnings());
    worktree.warnings.extend(sandbox.git_identity.warning());
    let engine = cx.runtime().await?;
    let unmapped = strict::unmapped(cx, (engine.kind(), engine.endpoint().rootless));
    worktree.warnings.extend(unmapped.map(|(code, message)| SandboxWarning::new(code, message)));
    let devcontainer = apply_devcontainer(cx, sandbox, &open, &worktree).await?;
    Ok((repository, worktree, devcontainer))
}

impl Render for WorktreeCreateResponse {
    fn render(&self, _: Timestamp) -> Document {
        let Worktree { path, host_path, branch, base, base_commit, created, ports, .. } = &self.worktree;
        let outcome = if *created { " is ready" } else { " was there already" };
        let commit: String = base_commit.chars().take(12).collect();
        let devcontainer = self.devcontainer.as_ref();
        let arguments = self.profile.workflow_arguments(&self.workflow);
        Document::line(StyledText::new().name(&self.workflow).plain(outcome))
            .facts([
                ("branch", branch.as_str().into()),
                ("from", format!("{base} ({commit})").into()),
                ("inside", path.as_str().into()),
                ("here", host_path.as_deref().unwrap_or_default().into()),
                ("ports", format!("{} to {}", ports.0, ports.1).into()),
                ("made as", devcontainer.map(|it| it.file.as_str()).unwrap_or_default().into()),
                ("next", format!("coracle worker run --worktree {arguments} --prompt '…'").into()),
            ])
            .and_lines(devcontainer.map(devcontainer_lines).unwrap_or_default())
            .timed()
    }
}

/// The file's commands with their outcomes, and what has no effect.
fn devcontainer_lines(report: &DevcontainerReport) -> Vec<StyledText> {
    let command = |it: &CommandRan| {
        let name = [word(it.stage), it.name.clone().unwrap_or_default()].join(" ");
        let (line, name) = (StyledText::from("  "), name.trim_end());
        match &it.error {
            None => line.good("ran").plain(format!(" {name}")),
            Some(error) => {
                let output = it.output.lines().collect::<Vec<_>>().join("\n");
                line.bad("failed").plain(format!(" {name}: {error}\n{output}"))
            }
        }
    };
    // A failure of an earlier call is shown as long as it keeps other commands from running.
    let earlier = report.failed.iter().filter(|it| !report.commands.contains(it));
    let warning = |it: &SandboxWarning| StyledText::from("  ").doubtful("note").plain(format!(" {}", it.message));
    let commands = report.commands.iter().chain(earlier).map(command);
    commands.chain(report.warnings.iter().map(warning)).collect()
}
