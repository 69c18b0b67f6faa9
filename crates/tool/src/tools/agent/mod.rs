//! The toolset `agent`: a few small tools on one machine.
//!
//! Each makes a request of an operation or of a session tool from its arguments, and the typed response renders the text. A
//! call that names no container works on the session's own machine, which the first such call creates.
//!
//! **Invariant:** nothing here acts by itself: what is called is checked, audited and logged as if it was called directly.

mod agent_tool;
mod commands;
mod containers;
mod create;
mod files;
mod help;
mod inner_call;
mod machine;

use self::agent_tool::AgentTool;
use crate::dispatch::OperationEntry;

/// Its tools, as the protocol lists them.
pub(super) static ALL: &[OperationEntry] = &[
    OperationEntry::agent::<commands::ShellTool>(),
    OperationEntry::agent::<commands::JobTool>(),
    OperationEntry::agent::<files::ReadFileTool>(),
    OperationEntry::agent::<files::WriteFileTool>(),
    OperationEntry::agent::<files::EditFileTool>(),
    OperationEntry::agent::<files::SearchTool>(),
    OperationEntry::agent::<files::FindFilesTool>(),
    OperationEntry::agent::<commands::PythonTool>(),
    OperationEntry::agent::<create::CreateTool>(),
    OperationEntry::agent::<containers::ForwardTool>(),
    OperationEntry::agent::<containers::UndoTool>(),
    OperationEntry::agent::<containers::DestroyTool>(),
    OperationEntry { arguments: containers::arguments, ..OperationEntry::agent::<containers::ContainersTool>() },
];
