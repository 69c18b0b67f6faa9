//! The tools of a session beside `containers`: files, shell and snippets, each a tool of its own.
//!
//! What they do is in `coracle-workspace`; here they become rows of a table that every mouth reads.

mod backoff;
mod changes;
mod entry;
mod events;
mod image;
mod mounts;
pub(crate) mod packages;
mod plan;
mod prompt;
mod sessions;
mod settings;
mod shell_output;
mod toolset;
mod upkeep;
mod way_out;
mod without;

use std::time::Instant;

use coracle_workspace::{EditFile, EvaluatePython, Glob, Grep, Ls, ReadFile, Rm, Shell, Snapshot, WriteFile};
use serde_json::{Map, Value};

pub use self::changes::{apply, diff, export};
pub(crate) use self::entry::{Said, ToolEntry};
pub(crate) use self::events::{heard, is_bidirectional, teller};
pub(crate) use self::image::{Imaged, cook, not_for_snippets, of_sandbox as sandbox_image, trust};
pub(crate) use self::mounts::working_dir;
pub use self::prompt::prompt;
pub(crate) use self::sessions::room_failure;
pub(crate) use self::settings::{SessionTools, runs_on_host};
pub use self::toolset::Toolset;
pub use self::upkeep::end;
pub(crate) use self::upkeep::{keep_up, show};
pub(crate) use self::way_out::reaches_out;
use crate::context::Context;
use crate::failure::Failure;
use crate::sandbox::workflow::{WorkflowCancel, WorkflowEvents, WorkflowStart, WorkflowStatus};

/// All tools but `containers`, in the order of their sets.
pub(crate) const ALL: &[ToolEntry] = &[
    ToolEntry::of::<Ls>(),
    ToolEntry::of::<ReadFile>(),
    ToolEntry::of::<WriteFile>(),
    ToolEntry::of::<EditFile>(),
    ToolEntry::of::<Glob>(),
    ToolEntry::of::<Grep>(),
    ToolEntry::of::<Rm>(),
    ToolEntry::shell(<Shell as coracle_workspace::Tool>::NAME),
    ToolEntry::of::<EvaluatePython>(),
    ToolEntry::run_code(),
    ToolEntry::shell_output(),
    ToolEntry::operation::<WorkflowStart>(&[Toolset::Worktrees]),
    ToolEntry::operation::<WorkflowStatus>(&[Toolset::Worktrees]),
    ToolEntry::operation::<WorkflowEvents>(&[Toolset::Worktrees]),
    ToolEntry::operation::<WorkflowCancel>(&[Toolset::Worktrees]),
];

/// What a person may ask as well: no agent needs it.
pub(crate) const SNAPSHOT: ToolEntry = ToolEntry::of::<Snapshot>();

/// Another name of the shell, which agents of one kind know it by.
const PODMAN_SHELL: ToolEntry = ToolEntry::shell("podman_shell");

/// The tools that the person's configuration gives.
pub(crate) fn given(cx: &Context) -> Vec<ToolEntry> {
    let sets = &cx.toolsets;
    let names = &cx.config.workspace.shell_names;
    let mut tools: Vec<ToolEntry> =
        ALL.iter().copied().filter(|it| it.sets.iter().any(|set| sets.contains(set))).collect();
    tools.retain(|it| !it.is_shell() || names.iter().any(|name| name == it.name));
    if sets.contains(&Toolset::Workspace) && names.iter().any(|it| it == PODMAN_SHELL.name) {
        tools.push(PODMAN_SHELL);
    }
    tools
}

/// Does what a call of one of the tools asks.
pub(crate) async fn call(entry: &ToolEntry, cx: &Context, object: Map<String, Value>) -> Said {
    let begun = Instant::now();
    let said = match ready(entry, cx, &object) {
        Ok((args, workspace)) => (entry.call)(entry.name, args, workspace, cx.clone()).await,
        Err(failure) => entry.refused(&failure.told_to(&cx.reader())),
    };
    events::called(cx, entry, &object, (&said, begun.elapsed()));
    said
}

fn ready(
    entry: &ToolEntry,
    cx: &Context,
    object: &Map<String, Value>,
) -> Result<(Map<String, Value>, coracle_workspace::Workspace), Failure> {
    if let Some(fault) = cx.config_fault.as_deref() {
        return Err(fault.clone());
    }
    let (args, problems) = crate::op::alone(entry.name, &entry.arguments(), entry.aliases, object.clone());
    if !problems.is_empty() {
        return Err(crate::op::refusal(&problems));
    }
    Ok((args, cx.session_tools()?.for_call(cx)))
}

/// A call of a tool by its name; nothing when the configuration gives no such tool.
pub async fn by_name(cx: &Context, name: &str, arguments: Map<String, Value>) -> Option<Map<String, Value>> {
    let entry = given(cx).into_iter().find(|it| it.name == name)?;
    Some(call(&entry, cx, arguments).await.answer)
}
