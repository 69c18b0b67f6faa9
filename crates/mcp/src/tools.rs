//! The tools as the protocol lists them.

use std::sync::Arc;

use coracle::config::Toolset;
use coracle::tools::{given, reaches_out};
use coracle::{Context, OperationEntry, Process, operations, schema, tool_schema};
use coracle_workspace::Effect;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::json;

/// The tool that is called.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToolCall {
    /// `containers`, with an operation.
    Containers,
    /// One of the others.
    Tool(OperationEntry),
}

/// The tools of a connection.
#[derive(Debug)]
pub(super) struct Tools {
    /// As the protocol lists them.
    pub(super) listed: Vec<Tool>,
    has_containers: bool,
    /// Snippets run in no container.
    on_host: bool,
    others: Vec<OperationEntry>,
}

impl Tools {
    pub(super) fn for_process(process: &Process) -> Self {
        let has_containers = process.toolsets.contains(&Toolset::Containers);
        let others = given(process);
        let cx = &process.context;
        let listed =
            has_containers.then(containers).into_iter().chain(others.iter().map(|it| describe(it, cx))).collect();
        Self { listed, has_containers, on_host: coracle::session_tools::runs_on_host(cx), others }
    }

    pub(super) fn find(&self, name: &str) -> Option<ToolCall> {
        if self.has_containers && name == CONTAINERS {
            return Some(ToolCall::Containers);
        }
        self.others.iter().find(|it| it.name == name).copied().map(ToolCall::Tool)
    }

    pub(super) fn instructions(&self) -> String {
        let mut parts = Vec::new();
        if self.has_containers {
            parts.push(
                "`containers`: each container is a Linux machine of its own. Start with `create`, run commands with \
                 `exec`, and `destroy` it at the end.",
            );
        }
        if self.others.iter().any(|it| it.sets.contains(&Toolset::Workspace)) {
            parts.push(
                "`ls`, `read_file`, `write_file`, `edit_file`, `glob`, `grep` and `rm` work on the files of a container \
                 of this session, and the shell runs programs there; it is made when it is first needed.",
            );
            if self.has_containers {
                parts.push("With `container` they work in one that `create` made: `exec` sees the same files.");
            }
        }
        if self.others.iter().any(|it| it.sets.contains(&Toolset::Code)) {
            parts.push(match self.on_host {
                true => "`run_code` runs a snippet in a program on the host: it is not isolated.",
                false => "`run_code` runs a snippet in an isolated container.",
            });
        }
        if self.others.iter().any(|it| it.sets.contains(&Toolset::Worktrees)) {
            parts.push(
                "`workflow_start` lets another agent work on a task, in a sandbox with a branch of its own; \
                 `workflow_status` and `workflow_events` tell what it does, `workflow_result` and `workflow_diff` what \
                 came of it; `workflow_apply` takes it over.",
            );
        }
        parts.join("\n")
    }
}

const CONTAINERS: &str = "containers";

fn containers() -> Tool {
    let input = tool_schema::input_schema(operations::ALL);
    let told = tool_schema::tool(operations::ALL);
    let description = told["description"].as_str().unwrap_or_default().to_owned();
    let answer = json!({
        "type": "object",
        "properties": {
            "success": { "type": "boolean" },
            "error": { "type": ["string", "null"] },
            "code": { "type": ["string", "null"] },
            "hint": { "type": ["string", "null"] },
        },
        "required": ["success"],
    });
    Tool::new(CONTAINERS, description, input.as_object().cloned().unwrap_or_default())
        .with_raw_output_schema(Arc::new(answer.as_object().cloned().unwrap_or_default()))
        .with_annotations(ToolAnnotations::new().read_only(false).destructive(true).open_world(true))
}

fn describe(entry: &OperationEntry, cx: &Context) -> Tool {
    let arguments = entry.arguments();
    let output = entry.output().as_object().cloned().unwrap_or_default();
    let looks = entry.effect == Effect::ReadOnly;
    // The agent of a workflow asks a model; what a session's own containers reach, the person decides.
    let open = entry.sets.contains(&Toolset::Worktrees) || reaches_out(cx, entry);
    let hints = ToolAnnotations::new().read_only(looks).destructive(!looks).idempotent(looks).open_world(open);
    Tool::new(entry.name, arguments.description.clone(), schema::alone(&arguments))
        .with_raw_output_schema(Arc::new(output))
        .with_annotations(hints)
}
