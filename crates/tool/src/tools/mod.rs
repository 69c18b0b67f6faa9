//! The tools of a session beside `containers`: files, shell and snippets, each a tool of its own.
//!
//! What they do is in `coracle-workspace`; here they become rows of a table that every frontend reads.

mod agent;
mod call_log;
mod chosen_container;
mod entry;
mod file_content;
mod images;
mod shell_output;

use std::time::Instant;

use coracle_workspace::{
    EditFile, EvaluatePython, Glob, Grep, Ls, ReadFile, Rm, RunCode, Shell, SlotRole, Snapshot, WriteFile,
};
use serde_json::{Map, Value};

use crate::config::Toolset;
use crate::context::{Context, Frontend};
use crate::dispatch::{self, AnswerShape, CallResponse, OperationEntry, PreparedCall};
use crate::failure::Failure;
use crate::process::Process;
use crate::session_tools::{is_open, runs_on_host};
use crate::workflow::{
    WorkflowApply, WorkflowCancel, WorkflowDiff, WorkflowEvents, WorkflowExec, WorkflowResult, WorkflowStart,
    WorkflowStatus,
};

/// All tools but `containers`, in the order of their sets.
pub static ALL: &[OperationEntry] = &[
    OperationEntry::tool::<Ls>(),
    OperationEntry::tool::<ReadFile>(),
    OperationEntry::tool::<WriteFile>(),
    OperationEntry::tool::<EditFile>(),
    OperationEntry::tool::<Glob>(),
    OperationEntry::tool::<Grep>(),
    OperationEntry::tool::<Rm>(),
    OperationEntry::shell(SHELLS[0]),
    OperationEntry::tool::<EvaluatePython>(),
    OperationEntry::run_code(),
    OperationEntry::shell_output(),
    OperationEntry::for_tool::<WorkflowStart>(&[Toolset::Worktrees]),
    OperationEntry::for_tool::<WorkflowStatus>(&[Toolset::Worktrees]),
    OperationEntry::for_tool::<WorkflowEvents>(&[Toolset::Worktrees]),
    OperationEntry::for_tool::<WorkflowCancel>(&[Toolset::Worktrees]),
    OperationEntry::for_tool::<WorkflowResult>(&[Toolset::Worktrees]),
    OperationEntry::for_tool::<WorkflowDiff>(&[Toolset::Worktrees]),
    OperationEntry::for_tool::<WorkflowApply>(&[Toolset::Worktrees]),
    OperationEntry::for_tool::<WorkflowExec>(&[Toolset::Worktrees]),
];

/// What a person may ask as well: no agent needs it.
pub static SNAPSHOT: OperationEntry = OperationEntry::tool::<Snapshot>();

/// What programs with an open connection call as well: content of files as raw bytes.
pub static CONTENT: &[OperationEntry] =
    &[OperationEntry::for_tool::<file_content::Download>(&[]), OperationEntry::for_tool::<file_content::Upload>(&[])];

/// Another name of the shell, which agents of one kind know it by.
static PODMAN_SHELL: OperationEntry = OperationEntry::shell(SHELLS[1]);

/// The tool of the toolset `classic`, which takes the place of one of that name.
pub const CLASSIC: &str = "containers";

/// Names of the shell.
const SHELLS: [&str; 2] = [<Shell as coracle_workspace::Tool>::NAME, "podman_shell"];

/// The tools that the person's configuration gives.
pub fn given(process: &Process) -> Vec<OperationEntry> {
    let sets = &process.toolsets;
    let names = &process.context.config.workspace.shell_names;
    let mut tools: Vec<OperationEntry> =
        ALL.iter().copied().filter(|it| it.sets.iter().any(|set| sets.contains(set))).collect();
    tools.retain(|it| !is_shell(it) || names.iter().any(|name| name == it.name));
    if sets.contains(&Toolset::Agent) {
        // Where both have a tool of one name, that of the agent's machine is given.
        tools.retain(|it| !agent::ALL.iter().any(|own| own.name == it.name));
        let has_classic = |it: &&OperationEntry| sets.contains(&Toolset::Classic) && it.name == CLASSIC;
        tools.splice(0..0, agent::ALL.iter().filter(|it| !has_classic(it)).copied());
    }
    if sets.contains(&Toolset::Workspace) && names.iter().any(|it| it == PODMAN_SHELL.name) {
        tools.push(PODMAN_SHELL);
    }
    tools
}

/// Does what a call of one of the tools asks.
pub(crate) async fn call(entry: &OperationEntry, process: &Process, object: Map<String, Value>) -> CallResponse {
    if let AnswerShape::Forwarded { is_open } = entry.shape {
        return forward(entry, process, object, is_open).await;
    }
    let begun = Instant::now();
    let response = match respond(entry, process, object.clone()).await {
        Ok(response) => entry.shaped(response),
        Err(failure) => entry.refused(&failure.for_reader(&process.context.reader())),
    };
    call_log::called(process, entry, &object, &response, begun.elapsed());
    if process.context.call.frontend != Frontend::Mcp {
        return response;
    }
    let response = images::beside_the_text(response);
    let writes = [<WriteFile as coracle_workspace::Tool>::NAME, <EditFile as coracle_workspace::Tool>::NAME];
    if writes.contains(&entry.name) { without_file(response) } else { response }
}

/// The answer of a write without the file: its agent sent the content, or has read it.
fn without_file(mut response: CallResponse) -> CallResponse {
    if let Some(written) = response.json.get_mut("value").and_then(Value::as_object_mut) {
        written.retain(|field, _| !["content", "content_truncated"].contains(&field.as_str()));
    }
    response
}

/// What a tool of the toolset `agent` calls is logged as its own call.
async fn forward(entry: &OperationEntry, process: &Process, object: Map<String, Value>, is_open: bool) -> CallResponse {
    let done = if is_open { carry_out(entry, process, object).await } else { respond(entry, process, object).await };
    let mut response = done.unwrap_or_else(|failure| entry.refused(&failure.for_reader(&process.context.reader())));
    response.json.retain(|_, it| !it.is_null());
    response.json.entry("success").or_insert(true.into());
    response
}

async fn respond(
    entry: &OperationEntry,
    process: &Process,
    object: Map<String, Value>,
) -> Result<CallResponse, Failure> {
    carry_out(entry, process, own_fields(entry, object)?).await
}

fn own_fields(entry: &OperationEntry, object: Map<String, Value>) -> Result<Map<String, Value>, Failure> {
    let (args, problems) = dispatch::alone(entry, object);
    if problems.is_empty() { Ok(args) } else { Err(dispatch::refusal(&problems)) }
}

/// Checks a call's fields and does nothing.
pub(crate) fn check(entry: &OperationEntry, object: Map<String, Value>) -> Result<(), Failure> {
    prepared(entry, own_fields(entry, object)?).map(drop)
}

fn prepared(entry: &OperationEntry, args: Map<String, Value>) -> Result<PreparedCall, Failure> {
    (entry.prepare)(entry.name, args).map_err(|problems| dispatch::refusal(&problems))
}

async fn carry_out(
    entry: &OperationEntry,
    process: &Process,
    args: Map<String, Value>,
) -> Result<CallResponse, Failure> {
    if !entry.diagnoses {
        process.context.configured()?;
    }
    entry.run(prepared(entry, args.clone())?, process, &args).await
}

/// Whether it is the shell, by any of its names.
fn is_shell(entry: &OperationEntry) -> bool {
    SHELLS.contains(&entry.name)
}

/// A call of a tool by its name; nothing when the configuration gives no such tool.
pub async fn by_name(process: &Process, name: &str, arguments: Map<String, Value>) -> Option<Map<String, Value>> {
    Some(reply_by_name(process, name, arguments).await?.json)
}

/// The same, with what a model reads.
pub async fn reply_by_name(process: &Process, name: &str, arguments: Map<String, Value>) -> Option<CallResponse> {
    let entry = given(process).into_iter().find(|it| it.name == name)?;
    Some(call(&entry, process, arguments).await)
}

/// Whether what a tool runs reaches anything outside: one that only handles files runs nothing.
pub fn reaches_out(cx: &Context, entry: &OperationEntry) -> bool {
    match entry.name {
        RunCode::NAME => is_open(&cx.config, SlotRole::Run) || runs_on_host(cx),
        <EvaluatePython as coracle_workspace::Tool>::NAME => is_open(&cx.config, SlotRole::Workspace),
        _ => is_shell(entry) && is_open(&cx.config, SlotRole::Workspace),
    }
}
