//! The tools of a session beside `containers`: files, shell and snippets, each a tool of its own.
//!
//! What they do is in `coracle-workspace`; here they become rows of a table that every mouth reads.

mod call_log;
mod entry;
mod shell_output;

use std::time::Instant;

use coracle_workspace::{
    EditFile, EvaluatePython, Glob, Grep, Ls, ReadFile, Rm, RunCode, Shell, SlotRole, Snapshot, WriteFile,
};
use serde_json::{Map, Value};

pub use self::entry::{Said, ToolEntry};
use crate::config::Toolset;
use crate::context::Context;
use crate::failure::Failure;
use crate::operations::workflow::{WorkflowCancel, WorkflowEvents, WorkflowStart, WorkflowStatus};
use crate::process::Process;
use crate::session_tools::{is_open, runs_on_host};

/// All tools but `containers`, in the order of their sets.
pub static ALL: &[ToolEntry] = &[
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
pub static SNAPSHOT: ToolEntry = ToolEntry::of::<Snapshot>();

/// Another name of the shell, which agents of one kind know it by.
static PODMAN_SHELL: ToolEntry = ToolEntry::shell("podman_shell");

/// The tools that the person's configuration gives.
pub fn given(process: &Process) -> Vec<ToolEntry> {
    let sets = &process.toolsets;
    let names = &process.context.config.workspace.shell_names;
    let mut tools: Vec<ToolEntry> =
        ALL.iter().copied().filter(|it| it.sets.iter().any(|set| sets.contains(set))).collect();
    tools.retain(|it| !it.is_shell() || names.iter().any(|name| name == it.name));
    if sets.contains(&Toolset::Workspace) && names.iter().any(|it| it == PODMAN_SHELL.name) {
        tools.push(PODMAN_SHELL);
    }
    tools
}

/// Does what a call of one of the tools asks.
pub(crate) async fn call(entry: &ToolEntry, process: &Process, object: Map<String, Value>) -> Said {
    let begun = Instant::now();
    let said = match ready(entry, process, &object) {
        Ok((args, workspace)) => (entry.call)(entry.name, args, workspace, process.clone()).await,
        Err(failure) => entry.refused(&failure.for_reader(&process.context.reader())),
    };
    call_log::called(process, entry, &object, &said, begun.elapsed());
    said
}

fn ready(
    entry: &ToolEntry,
    process: &Process,
    object: &Map<String, Value>,
) -> Result<(Map<String, Value>, coracle_workspace::Workspace), Failure> {
    process.context.configured()?;
    let (args, problems) = crate::dispatch::alone(entry.name, &entry.arguments(), entry.aliases, object.clone());
    if !problems.is_empty() {
        return Err(crate::dispatch::refusal(&problems));
    }
    Ok((args, process.session_tools()?.for_call(&process.context)))
}

/// A call of a tool by its name; nothing when the configuration gives no such tool.
pub async fn by_name(process: &Process, name: &str, arguments: Map<String, Value>) -> Option<Map<String, Value>> {
    let entry = given(process).into_iter().find(|it| it.name == name)?;
    Some(call(&entry, process, arguments).await.answer)
}

/// Whether what a tool runs reaches anything outside: one that only handles files runs nothing.
pub fn reaches_out(cx: &Context, entry: &ToolEntry) -> bool {
    match entry.name {
        RunCode::NAME => is_open(&cx.config, SlotRole::Run) || runs_on_host(cx),
        <EvaluatePython as coracle_workspace::Tool>::NAME => is_open(&cx.config, SlotRole::Workspace),
        _ => entry.is_shell() && is_open(&cx.config, SlotRole::Workspace),
    }
}
