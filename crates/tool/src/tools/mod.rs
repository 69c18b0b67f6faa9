//! The tools of a session in addition to `containers`: files, shell and snippets, each a separate tool.
//!
//! `coracle-workspace` implements them; here they become entries of a table that every front end reads.

mod agent;
mod brief;
mod call_log;
mod chosen_container;
mod entry;
mod file_content;
mod images;
#[cfg(test)]
mod purposes;
mod shell_output;

use std::time::Instant;

use coracle_context::config::Toolset;
use coracle_context::context::{Context, Frontend};
use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use coracle_prepare::session_tools::{is_open, runs_on_host};
use coracle_workspace::{
    EditFile, EvaluatePython, Glob, Grep, Ls, ReadFile, Rm, RunCode, Shell, SlotRole, Snapshot, WriteFile,
};
use serde_json::{Map, Value};

use crate::dispatch::{self, AnswerShape, CallResponse, OperationEntry, ParsedCall};
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

/// The tools of the user's configuration.
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

/// Executes a call of one of the tools.
pub(crate) async fn execute(entry: &OperationEntry, process: &Process, object: Map<String, Value>) -> CallResponse {
    let call = parse(entry, object.clone());
    if let AnswerShape::Forwarded { .. } = entry.shape {
        // What a tool of the toolset `agent` calls is logged as its own call.
        let response = match call {
            Ok(call) => call.execute(process).await,
            Err(failure) => Err(failure),
        };
        let mut response =
            response.unwrap_or_else(|failure| entry.refused(&failure.for_reader(&process.context.reader())));
        response.json.retain(|_, value| !value.is_null());
        response.json.entry("success").or_insert(true.into());
        return response;
    }
    execute_parsed(entry, process, call, &object).await
}

/// Reads the fields of a call of a tool.
///
/// # Errors
/// Everything that is wrong with them, in one failure.
pub(crate) fn parse(entry: &OperationEntry, object: Map<String, Value>) -> Result<ParsedCall, Failure> {
    let args = match entry.shape {
        AnswerShape::Forwarded { is_open: true } => object,
        _ => {
            let (args, problems) = dispatch::tool_fields(entry, object);
            if !problems.is_empty() {
                return Err(dispatch::refusal(&problems));
            }
            args
        }
    };
    let prepared = (entry.prepare)(entry.name, args.clone()).map_err(|problems| dispatch::refusal(&problems))?;
    Ok(ParsedCall { entry: *entry, prepared, args })
}

/// Executes a call of a session tool, with its line in the session's event log.
async fn execute_parsed(
    entry: &OperationEntry,
    process: &Process,
    call: Result<ParsedCall, Failure>,
    object: &Map<String, Value>,
) -> CallResponse {
    let begun = Instant::now();
    let response = match call {
        Ok(call) => call.execute(process).await,
        Err(failure) => Err(failure),
    };
    let response = match response {
        Ok(response) => entry.shaped(response),
        Err(failure) => entry.refused(&failure.for_reader(&process.context.reader())),
    };
    call_log::called(process, entry, object, &response, begun.elapsed());
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

/// Whether it is the shell, by any of its names.
fn is_shell(entry: &OperationEntry) -> bool {
    SHELLS.contains(&entry.name)
}

/// Executes a call of a tool by its name; nothing when the configuration gives no such tool.
pub async fn execute_named(process: &Process, name: &str, arguments: Map<String, Value>) -> Option<CallResponse> {
    let entry = given(process).into_iter().find(|entry| entry.name == name)?;
    Some(execute(&entry, process, arguments).await)
}

/// Whether what a tool runs reaches anything outside: one that only handles files runs nothing.
pub fn reaches_out(cx: &Context, entry: &OperationEntry) -> bool {
    match entry.name {
        RunCode::NAME => is_open(&cx.config, SlotRole::Run) || runs_on_host(cx),
        <EvaluatePython as coracle_workspace::Tool>::NAME => is_open(&cx.config, SlotRole::Workspace),
        _ => is_shell(entry) && is_open(&cx.config, SlotRole::Workspace),
    }
}
