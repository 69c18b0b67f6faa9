//! The callable operations and tools.

use std::sync::Arc;

use coracle::{OperationEntry, operations, tools};
use coracle_context::{Code, Failure};
use coracle_prepare::Process;

/// The target of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callee {
    /// An operation of `containers`, named in the arguments.
    Operation,
    /// A tool.
    Tool(OperationEntry),
}

/// The tools of a process. Clones share the list.
#[derive(Clone, Debug)]
pub(crate) struct Catalog(Arc<[OperationEntry]>);

impl Catalog {
    pub(crate) fn for_process(process: &Process) -> Self {
        Self(tools::given(process).into())
    }

    /// The operations of `containers`.
    pub(crate) fn operations() -> &'static [OperationEntry] {
        operations::ALL
    }

    pub(crate) fn tools(&self) -> &[OperationEntry] {
        &self.0
    }

    /// Finds a tool by its name.
    pub(crate) fn tool(&self, name: &str) -> Result<Callee, Failure> {
        let known = || self.0.iter().map(|it| it.name).collect::<Vec<_>>().join(", ");
        let all = self.0.iter().chain(tools::CONTENT);
        all.copied().find(|it| it.name == name).map(Callee::Tool).ok_or_else(|| {
            let shown: String = name.chars().take(64).collect();
            Failure::new(Code::UnknownOperation, format!("no tool `{}`", shown.escape_debug()))
                .hint(format!("one of {}; operations such as `create` go into `call`", known()))
        })
    }
}
