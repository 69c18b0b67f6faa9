//! `worktree_apply`: the work of a workflow into a checkout of this host.

use std::path::PathBuf;

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_context::git_programs;
use coracle_prepare::process::Process;
use coracle_sandbox::SandboxHandle;
use coracle_worktrees::changes::{ApplyMode, ApplyReport, ApplyRequest};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Profile, Workflow, open};
use crate::dispatch::{Effect, Operation};

/// Bring what a workflow changed into a directory of this host: all of it, or nothing where something conflicts.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Apply {
    /// The workflow's id.
    workflow: Workflow,
    /// The checkout, beneath the working directory or another allowed one. When missing, the directory that the
    /// workflow began from, or the working directory where it began from a URL.
    to: Option<PathBuf>,
    /// Fetch the commits as a branch, and touch no file.
    #[schemars(extend("default" = false))]
    branch: Option<bool>,
    /// Change files that decide what programs do, too: those of git, of hooks, of editors, of CI and of agents.
    #[schemars(extend("default" = false))]
    protected: Option<bool>,
    /// The kind of sandbox; when missing, the workflow's, else `default`.
    profile: Option<Profile>,
}

/// How work is applied, and to which checkout if the caller names one.
pub(crate) struct CheckoutRequest {
    pub(crate) to: Option<PathBuf>,
    pub(crate) mode: ApplyMode,
    pub(crate) protected: bool,
}

impl CheckoutRequest {
    /// Decides the checkout: the directory that the workflow began from, or the working directory.
    pub(crate) async fn resolve(self, cx: &Context, sandbox: &SandboxHandle) -> Result<ApplyRequest, Failure> {
        let begun_from = || sandbox.repository().map(PathBuf::from).filter(|it| it.is_absolute());
        let to = self.to.map(|it| cx.host.path(&it)).or_else(begun_from);
        let to = to.unwrap_or_else(|| cx.config.working_dir(&cx.host));
        let bound = cx.store()?.is_written_inside(&to.canonicalize().unwrap_or_else(|_| to.clone()))?;
        let programs = git_programs::protected(cx, [&*to.canonicalize().unwrap_or_else(|_| to.clone())]).await;
        let programs = programs.into_iter().filter(|it| it.starts_with('/')).collect();
        Ok(ApplyRequest { to, mode: self.mode, protected: self.protected, programs, bound })
    }
}

impl Operation<Process> for Apply {
    const NAME: &'static str = "worktree_apply";
    const EFFECT: Effect = Effect::Irreversible;
    type Response = ApplyReport;

    async fn run(self, process: &Process) -> Result<ApplyReport, Failure> {
        let (sandbox, open) = open(process, self.profile, &self.workflow).await?;
        let mode = if self.branch.unwrap_or(false) { ApplyMode::Branch } else { ApplyMode::Files };
        let request = CheckoutRequest { to: self.to, mode, protected: self.protected.unwrap_or(false) };
        let options = request.resolve(&process.context, &sandbox).await?;
        Ok(sandbox.worktrees.apply(&open.inside, &self.workflow.0, &options).await?)
    }
}
