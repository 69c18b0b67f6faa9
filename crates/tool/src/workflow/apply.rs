//! `workflow_apply`: the work of a workflow into the checkout that it began from.

use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_runtime::{PolicyRefusal, Problem};
use coracle_worktrees::changes::{ApplyMode, ApplyReport};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{OpenWorkflow, has_ended};
use crate::dispatch::{Effect, Operation};
use crate::worktree::{CheckoutRequest, Workflow};

/// Bring the work of a workflow that ended into the directory that it began from: all of it, or nothing where something
/// conflicts. For a repository of a URL that is the working directory. Files that decide what programs do are for the user to change.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct WorkflowApply {
    /// The workflow's id.
    workflow: Workflow,
    /// `files`: change the files, commit nothing. `branch`: fetch the commits as the workflow's branch, change no file.
    #[schemars(with = "Option<String>", extend("default" = "files", "enum" = ["files", "branch"]))]
    mode: Option<ApplyMode>,
}

impl Operation<Process> for WorkflowApply {
    const NAME: &'static str = "workflow_apply";
    const EFFECT: Effect = Effect::Irreversible;
    type Response = ApplyReport;

    async fn run(self, process: &Process) -> Result<ApplyReport, Failure> {
        let cx = &process.context;
        if cx.config.is_strict() {
            let message = "nothing of a container is written to this host";
            return Err(refused("policy", message, &self.workflow, self.workflow.0.as_str()));
        }
        let found = OpenWorkflow::find(process, &self.workflow).await?;
        has_ended(&found.run)?;
        let request = CheckoutRequest { to: None, mode: self.mode.unwrap_or_default(), protected: false };
        let request = request.resolve(cx, &found.sandbox).await?;
        // A container could put a link in the way while files are written, and its agent is who calls.
        if request.bound {
            let message = format!("a container can write in `{}`", request.to.display());
            let arguments = found.open.inside.workflow_arguments(&self.workflow.0);
            return Err(refused("apply.bound", &message, &self.workflow, &arguments));
        }
        Ok(found.sandbox.worktrees.apply(&found.open.inside, &self.workflow.0, &request).await?)
    }
}

/// `arguments` name the workflow on the command line.
fn refused(rule: &'static str, message: &str, workflow: &Workflow, arguments: &str) -> Failure {
    let setting = (rule == "policy").then_some(rule);
    let problem = Problem { rule, setting, value: workflow.0.to_string(), message: message.to_owned() };
    Failure::from(PolicyRefusal { problems: vec![problem] }).hint(format!(
        "`workflow_diff` has the patch, which you can apply in your own container; the user runs `coracle worktree \
         apply {arguments}`"
    ))
}
