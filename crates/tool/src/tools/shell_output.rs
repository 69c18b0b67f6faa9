//! `shell_output`: what a command of the workspace or a snippet printed, when its answer had no room for it.

use coracle_client::Link;
use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure, slot_failure};
use coracle_lifecycle::SlotInfo;
use coracle_types::{JobId, Redactor};
use coracle_workspace::{SlotRole, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::commands::{JobPage, OutputSelection};
use crate::dispatch::SharedFields;
use crate::target::root_is_inside;

/// Read all that a command or snippet printed, when its answer was cut: a page from `offset` or `line` on, or with `pattern`
/// the lines that match. `next_offset` goes on where an answer ends.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ShellOutput {
    /// The `output_id` of the answer that was cut.
    #[schemars(with = "Name")]
    output_id: JobId,
    /// Byte of the output to begin at; negative counts from its end.
    #[schemars(extend("default" = 0))]
    offset: Option<i64>,
    #[serde(flatten)]
    selection: OutputSelection,
}

impl ShellOutput {
    pub(crate) const NAME: &'static str = "shell_output";
    pub(crate) const SHARED: SharedFields = SharedFields::for_type::<OutputSelection>();

    pub(crate) async fn run(self, cx: &Context, workspace: &Workspace) -> Result<Map<String, Value>, Failure> {
        let page = JobPage { job_id: &self.output_id, offset: self.offset, selection: &self.selection };
        for role in [SlotRole::Workspace, SlotRole::Run] {
            let Some(link) = workspace.sessions().held_link(role).await else { continue };
            shaped(cx, role)?;
            match read(&page, cx, &link).await {
                Err(failure) if failure.code == Code::JobNotFound => {}
                done => return done,
            }
        }
        Err(Failure::new(Code::OutputExpired, "That output is no longer available.")
            .hint("run the command again, with less output or into a file"))
    }
}

/// Refuses a container that was created under `standard` if the policy is now `strict`. It exists until its next use replaces
/// it.
fn shaped(cx: &Context, role: SlotRole) -> Result<(), Failure> {
    if !cx.config.is_strict() {
        return Ok(());
    }
    let mine = |it: &SlotInfo| it.session == cx.call.session && it.role == role && !it.rootless;
    match cx.session_containers()?.all().map_err(slot_failure)?.into_iter().find(mine) {
        Some(slot) => {
            Err(root_is_inside(slot.session.as_str()).hint("the next command makes another container, with its files"))
        }
        None => Ok(()),
    }
}

async fn read(page: &JobPage<'_>, cx: &Context, link: &Link) -> Result<Map<String, Value>, Failure> {
    let output = page.read(cx, link, &Redactor::default()).await?;
    match serde_json::to_value(output) {
        Ok(Value::Object(fields)) => Ok(fields),
        other => Err(Failure::internal(format!("stored output cannot be read: {other:?}"))),
    }
}
