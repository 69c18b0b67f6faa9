//! Operations as the page calls them.

use coracle::{CallInput, OperationEntry, admin, frontend, operations, tools, worktree};
use coracle_context::{Code, Event, Failure};
use coracle_prepare::Process;
use coracle_types::ContainerName;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Operations that the page uses.
const OPERATIONS: &[&str] = &[
    "create",
    "destroy",
    "status",
    "jobs",
    "exec_background",
    "exec_poll",
    "exec_cancel",
    "approvals list",
    "approvals allow",
    "approvals deny",
    "approvals revoke",
    "audit log",
    "checkpoint",
    "timeline",
    "checkpoint_diff",
    "rewind",
    "workspace show",
    "workspace diff",
    "workspace apply",
    "worktree_list",
    "worktree_diff",
    "worktree_apply",
    "worktree_push",
    "worktree_remove",
    "start",
    "stop",
];

/// The tools that the page uses besides the operations.
const TOOLS: &[&str] = &["workflow_start", "workflow_status", "workflow_events", "workflow_result", "workflow_cancel"];

/// Called for each event of a call.
pub(crate) type OnEvent<'a> = &'a mut (dyn FnMut(Event) + Send);

/// The body of a call.
#[derive(Debug, Deserialize)]
pub(crate) struct PageCall {
    /// Its session; default: that of the user.
    session: Option<String>,
    operation: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

impl PageCall {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(text).map_err(|err| Failure::new(Code::InvalidJson, err.to_string()))
    }

    /// Executes the call. The answer is that of the command line with `--json`.
    pub(crate) async fn answer(self, process: &Process, on_event: Option<OnEvent<'_>>) -> Map<String, Value> {
        let operation = self.operation.clone();
        self.run(process, on_event).await.unwrap_or_else(|failure| failure.answer(Some(&operation)))
    }

    async fn run(self, process: &Process, on_event: Option<OnEvent<'_>>) -> Result<Map<String, Value>, Failure> {
        let process = match &self.session {
            Some(name) => {
                let name = ContainerName::parse(name).map_err(|err| Failure::name("session", err))?;
                &process.clone().with_context(process.context.in_session(name))
            }
            None => process,
        };
        if TOOLS.contains(&self.operation.as_str())
            && let Some(entry) = tools::ALL.iter().find(|it| it.name == self.operation)
        {
            return Ok(frontend::execute_tool(process, *entry, self.arguments, on_event).await.json);
        }
        let table = table(&self.operation).ok_or_else(|| unknown(&self.operation))?;
        let mut call = self.arguments;
        call.insert("operation".into(), self.operation.into());
        Ok(frontend::execute(table, process, CallInput::Object(call), on_event).await.json)
    }
}

fn table(operation: &str) -> Option<&'static [OperationEntry]> {
    let tables = [operations::ALL, admin::ALL, worktree::ALL].into_iter();
    let mut tables = tables.filter(|table| table.iter().any(|it| it.name == operation));
    tables.next().filter(|_| OPERATIONS.contains(&operation))
}

fn unknown(operation: &str) -> Failure {
    Failure::new(Code::UnknownOperation, format!("the page has no operation `{}`", operation.escape_debug()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_of_the_page_exists() {
        for name in OPERATIONS {
            assert!(table(name).is_some(), "{name}");
        }
        assert!(TOOLS.iter().all(|name| tools::ALL.iter().any(|it| it.name == *name)));
        assert!(table("destroy_all").is_none());
    }
}
