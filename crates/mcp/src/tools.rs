//! The list of tools in the protocol.

use std::sync::Arc;

use coracle::tools::{CLASSIC, given, reaches_out};
use coracle::{OperationEntry, operations, tool_schema};
use coracle_context::Context;
use coracle_context::config::Toolset;
use coracle_context::suggest::nearest;
use coracle_prepare::Process;
use coracle_workspace::Effect;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::json;

/// A called tool.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToolCall {
    /// `containers`, with an operation.
    Containers,
    /// Any other tool.
    Tool(OperationEntry),
}

/// The tools of a connection.
#[derive(Debug)]
pub(super) struct Tools {
    /// The tools in the protocol's form.
    pub(super) listed: Vec<Tool>,
    has_classic: bool,
    /// Answers of the small tools include their data, too.
    has_agent_data: bool,
    /// Snippets do not run in a container.
    on_host: bool,
    others: Vec<OperationEntry>,
}

impl Tools {
    pub(super) fn for_process(process: &Process) -> Self {
        let has_classic = process.toolsets.contains(&Toolset::Classic);
        let others = given(process);
        let cx = &process.context;
        let listed = has_classic.then(containers).into_iter().chain(others.iter().map(|it| describe(it, cx))).collect();
        let has_agent_data = cx.config.mcp.structured_content;
        Self { listed, has_classic, has_agent_data, on_host: coracle_prepare::session_tools::runs_on_host(cx), others }
    }

    /// Whether answers of the tool include their data beside the text, which is required of a tool with an output schema.
    pub(super) fn has_data(&self, called: ToolCall) -> bool {
        match called {
            ToolCall::Containers => true,
            ToolCall::Tool(entry) => self.has_agent_data || entry.published_output().is_some(),
        }
    }

    pub(super) fn find(&self, name: &str) -> Option<ToolCall> {
        if self.has_classic && name == CLASSIC {
            return Some(ToolCall::Containers);
        }
        self.others.iter().find(|it| it.name == name).copied().map(ToolCall::Tool)
    }

    /// Explains that a tool is unknown, and suggests another one.
    pub(super) fn unknown(&self, name: &str) -> String {
        let is_operation = operations::ALL.iter().any(|it| it.name == name);
        let names: Vec<String> = self.listed.iter().map(|it| it.name.to_string()).collect();
        let instead = match nearest(name, &names) {
            _ if is_operation => format!("; call `{CLASSIC}` with {{\"operation\": \"{name}\"}}"),
            Some(near) => format!("; did you mean `{near}`? There are {}", names.join(", ")),
            None => format!("; there are {}", names.join(", ")),
        };
        format!("no tool `{}`{instead}", name.escape_debug())
    }

    pub(super) fn instructions(&self) -> String {
        let has = |set: Toolset| self.others.iter().any(|it| it.sets.contains(&set));
        let mut parts = Vec::new();
        if has(Toolset::Agent) {
            parts.push(include_str!("instructions.txt").trim_end());
        }
        if self.has_classic {
            parts.push(
                "`containers`: each container is a Linux machine of its own. Start with `create`, run commands with \
                 `exec`, and `destroy` it at the end.",
            );
        }
        if has(Toolset::Workspace) {
            parts.push(match has(Toolset::Agent) {
                true => "`ls`, `glob`, `grep`, `rm` and `shell_execute` work in another container of this session.",
                false => {
                    "`ls`, `read_file`, `write_file`, `edit_file`, `glob`, `grep` and `rm` work on the files of a \
                     container of this session, and the shell runs programs there; it is made when it is first needed."
                }
            });
            if self.has_classic {
                parts.push("With `container` they work in one that `create` made: `exec` sees the same files.");
            }
        }
        if has(Toolset::Code) {
            parts.push(match self.on_host {
                true => "`run_code` runs a snippet in a program on the host: it is not isolated.",
                false => "`run_code` runs a snippet in an isolated container.",
            });
        }
        if has(Toolset::Worktrees) {
            parts.push(
                "`workflow_start` lets another agent work on a task, in a sandbox with a branch of its own; \
                 `workflow_status` and `workflow_events` tell what it does, `workflow_result` and `workflow_diff` what \
                 came of it; `workflow_apply` takes it over.",
            );
        }
        parts.join("\n")
    }
}

fn containers() -> Tool {
    let input = tool_schema::input_schema(operations::ALL);
    let tool = tool_schema::tool(operations::ALL);
    let description = tool["description"].as_str().unwrap_or_default().to_owned();
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
    Tool::new(CLASSIC, description, input.as_object().cloned().unwrap_or_default())
        .with_raw_output_schema(Arc::new(answer.as_object().cloned().unwrap_or_default()))
        .with_annotations(ToolAnnotations::new().read_only(false).destructive(true).open_world(true))
}

fn describe(entry: &OperationEntry, cx: &Context) -> Tool {
    let tool = Tool::new(entry.name, entry.arguments().description, entry.input());
    let looks = entry.effect == Effect::ReadOnly;
    let Some(output) = entry.published_output() else {
        // Each session pays for each token of the list, and the protocol's default for missing hints is the cautious one.
        return match (looks, entry.name) {
            (true, _) => tool.with_annotations(ToolAnnotations::new().read_only(true)),
            (false, "destroy") => tool.with_annotations(ToolAnnotations::new().destructive(true)),
            (false, _) => tool,
        };
    };
    // The agent of a workflow calls a model; for the session's own containers the user configures network access.
    let open = entry.sets.contains(&Toolset::Worktrees) || reaches_out(cx, entry);
    let hints = ToolAnnotations::new().read_only(looks).destructive(!looks).idempotent(looks).open_world(open);
    tool.with_raw_output_schema(Arc::new(output.as_object().cloned().unwrap_or_default())).with_annotations(hints)
}
