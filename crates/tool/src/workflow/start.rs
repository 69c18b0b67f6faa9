//! `workflow_start`: another agent begins to work.

use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_context::progress::Progress;
use coracle_prepare::process::Process;
use coracle_prepare::sandbox::devcontainer::{WorkflowOrigin, chosen, discard_stale};
use coracle_prepare::sandbox::run::{RunTarget, Task, begin, drive, model};
use coracle_prepare::sandbox::source::source;
use coracle_prepare::sandbox::{apply_devcontainer, ensure_key, open, usual_profile};
use coracle_sandbox::{DevcontainerReport, OpenSandbox, SandboxHandle};
use coracle_types::{ProfileName, WorkflowId, random_hex};
use coracle_worktrees::create::{CreateRequest, SetupRequest, Worktree};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::worktree::{Profile, uncommitted};

/// Start an agent on a task, in a sandbox of its own with its own branch and worktree of the repository. It works on by
/// itself: look with `workflow_status` and `workflow_events`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WorkflowStart {
    /// What the agent is to do.
    prompt: String,
    /// The repository: a URL, or a directory beneath the working directory or another allowed one; the working
    /// directory when missing.
    source: Option<String>,
    /// What to begin from: a branch of the repository, a tag or a commit; its HEAD when missing.
    base: Option<String>,
    /// The kind of sandbox; when missing, the workflow's, else `default`.
    profile: Option<Profile>,
    /// The model; that of the configuration when missing.
    model: Option<String>,
    /// Instructions for the model in addition to the task.
    instructions: Option<String>,
    /// JSON Schema of the result.
    #[schemars(with = "Option<serde_json::Map<String, Value>>")]
    schema: Option<Value>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct WorkflowStartResponse {
    workflow: WorkflowId,
    run_id: String,
    branch: String,
    /// What of the repository's `devcontainer.json` was honoured, if it was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    devcontainer: Option<DevcontainerReport>,
}

impl Operation<Process> for WorkflowStart {
    const NAME: &'static str = "workflow_start";
    const EFFECT: Effect = Effect::Mutating;
    type Response = WorkflowStartResponse;

    async fn run(self, process: &Process) -> Result<WorkflowStartResponse, Failure> {
        let cx = &process.context;
        let profile = self.profile.map_or_else(usual_profile, |it| it.0);
        may_name(cx, &profile)?;
        if self.prompt.trim().is_empty() {
            return Err(Failure::invalid("prompt", "Prompt cannot be empty"));
        }
        let model = Some(model(cx, &profile, self.model)?);
        ensure_key(cx, &profile).await?;
        let id = WorkflowId::parse(format!("w-{}", random_hex::<4>()))?;
        let sandbox = process.sandboxes().of_workflow(&profile, &id).await?;
        let request = SetupRequest { source: source(cx, self.source), replace: false };
        sandbox.worktrees.expect_source(&request.source)?;
        let uncommitted = uncommitted(cx, None, &request.source, self.base.as_deref())?;
        let beginning =
            WorkflowOrigin { profile: &profile, workflow: &id, source: &request.source, base: self.base.as_deref() };
        let sandbox = discard_stale(process.sandboxes(), sandbox, &profile).await?;
        let claim = sandbox.begin().await?;
        let sandbox = process.sandboxes().with_repository(sandbox, &profile, &request.source).await?;
        let sandbox = chosen(process.sandboxes(), sandbox, beginning).await?;
        // A sandbox that existed may hold unsaved work.
        let new = sandbox.is_new().await?;
        let create = CreateRequest { base: self.base, uncommitted, ..CreateRequest::new(id.clone()) };
        let made = ready(cx, &sandbox, request, create).await;
        drop(claim);
        if made.is_err() {
            process.registry().give_up(&sandbox, new).await;
        }
        let (open, worktree, devcontainer) = made?;
        let Self { prompt, instructions, schema, .. } = self;
        let task = Task { profile, prompt, model, instructions, schema };
        let begun = begin(cx, &sandbox, &worktree, task)?;
        let answer = WorkflowStartResponse {
            workflow: id,
            run_id: begun.run.run_id.clone(),
            branch: worktree.branch,
            devcontainer,
        };
        // It outlives the call, and ends with the process.
        let cx = cx.clone();
        process.registry().spawn(|cancel| async move {
            let cx = cx.for_call(cancel, Progress::none());
            if let Err(err) = drive(&cx, &RunTarget { sandbox: &sandbox, open: &open }, begun, |_| {}).await {
                tracing::info!(%err.message, "a workflow ended without a result");
            }
        });
        Ok(answer)
    }
}

/// A sandbox with the worktree of a workflow.
async fn ready(
    cx: &Context,
    sandbox: &SandboxHandle,
    source: SetupRequest,
    request: CreateRequest,
) -> Result<(OpenSandbox, Worktree, Option<DevcontainerReport>), Failure> {
    let open = open(cx, sandbox).await?;
    cx.unless_cancelled(async { Ok(Box::pin(sandbox.worktrees.setup_repo(&open.inside, &source)).await?) }).await?;
    let worktree = Box::pin(sandbox.worktrees.create(&open.inside, &request)).await?;
    sandbox.set_env(&open, &worktree).await?;
    let applied = apply_devcontainer(cx, sandbox, &open, &worktree).await?;
    Ok((open, worktree, applied))
}

/// The user may name any profile; an agent only those that it was granted.
fn may_name(cx: &Context, profile: &ProfileName) -> Result<(), Failure> {
    if cx.call.frontend.is_of_person() || cx.config.sandbox.agent_profiles.contains(profile) {
        return Ok(());
    }
    let message = format!("the profile `{profile}` is not for agents");
    let failure = Failure::new(Code::PolicyDenied, message).detail("rule", "sandbox.profile");
    Err(failure.detail("setting", "sandbox.agent_profiles").hint("leave `profile` out"))
}
