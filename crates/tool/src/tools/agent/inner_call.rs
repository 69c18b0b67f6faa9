//! The call that a small tool makes.

use coracle_context::document::Render;
use coracle_context::failure::Failure;
use coracle_context::model_text::push_line;
use coracle_prepare::process::Process;
use coracle_types::{ContainerName, Handle};
use serde_json::{Map, Value, json};

use super::super::brief::Brief;
use super::super::entry::prepared_tool;
use super::{super as tools, machine};
use crate::dispatch::{CallResponse, Operation, OperationEntry, ParsedCall};
use crate::operations;

/// What a small tool does.
pub(super) enum InnerCall {
    /// It calls an operation, or a session tool.
    Call { call: ParsedCall, choice: ContainerChoice, is_tool: bool },
    /// It answers that.
    Text(String),
}

/// The container that a call works in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContainerChoice {
    /// The call names it, or needs none.
    Named,
    /// The session's machine, which is created if it is missing.
    Machine(ContainerName),
}

/// The field that defaults to the session's machine.
const CONTAINER: &str = "container";

/// Operations whose container has to be named: to remove the machine by an omission would be a surprise.
const NAMED: &[&str] = &["destroy", "wait_healthy"];

impl ContainerChoice {
    /// That container, or the session's machine, in whose name `args` are completed.
    ///
    /// # Errors
    /// `config_invalid` when the state directory cannot be used.
    pub(super) fn new(
        process: &Process,
        named: Option<Handle>,
        args: &mut Map<String, Value>,
    ) -> Result<(Handle, Self), Failure> {
        if let Some(handle) = named {
            return Ok((handle, Self::Named));
        }
        let name = machine::name_of(&process.context)?;
        args.insert(CONTAINER.into(), json!(name));
        Ok((Handle::Name(name.clone()), Self::Machine(name)))
    }
}

impl InnerCall {
    /// A request of an operation.
    pub(super) fn operation<T, S>(request: T, choice: ContainerChoice, args: Map<String, Value>) -> Self
    where
        T: Operation<S, Response: Render + 'static>,
        S: Sync + 'static,
        Process: AsRef<S>,
    {
        Self::Call { call: ParsedCall::new(request, args), choice, is_tool: false }
    }

    /// A call of a session tool in a container, or in the session's machine.
    ///
    /// # Errors
    /// Those of [`ContainerChoice::new`].
    pub(super) fn tool<T: Brief>(
        tool: T,
        process: &Process,
        container: Option<Handle>,
        mut args: Map<String, Value>,
    ) -> Result<Self, Failure> {
        let (handle, choice) = ContainerChoice::new(process, container, &mut args)?;
        let prepared = prepared_tool(Some(handle), tool);
        let call = ParsedCall { entry: OperationEntry::tool::<T>(), prepared, args };
        Ok(Self::Call { call, choice, is_tool: true })
    }

    /// A call of that row with fields that are not read yet.
    ///
    /// # Errors
    /// Everything that is wrong with the fields.
    pub(super) fn parse(
        callee: &'static OperationEntry,
        process: &Process,
        mut fields: Map<String, Value>,
    ) -> Result<Self, Failure> {
        fields.retain(|_, value| !value.is_null());
        let takes_container = || callee.arguments().properties.contains_key(CONTAINER);
        let names_one = [CONTAINER, "workflow"].iter().any(|field| fields.contains_key(*field));
        let choice = match !NAMED.contains(&callee.name) && !names_one && takes_container() {
            true => ContainerChoice::new(process, None, &mut fields)?.1,
            false => ContainerChoice::Named,
        };
        let is_tool = !operations::ALL.iter().any(|entry| std::ptr::eq(entry, callee));
        let call = if is_tool {
            tools::parse(callee, fields)?
        } else {
            fields.insert("operation".into(), callee.name.into());
            ParsedCall::parse(operations::ALL, process, fields)?
        };
        Ok(Self::Call { call, choice, is_tool })
    }

    /// Executes it. The machine is created first if the call works on it, and is described before the answer.
    ///
    /// # Errors
    /// Those of the operation, and of `create` for the machine.
    pub(super) async fn execute(self, process: &Process) -> Result<CallResponse, Failure> {
        let (call, choice, is_tool) = match self {
            Self::Call { call, choice, is_tool } => (call, choice, is_tool),
            Self::Text(text) => return Ok(CallResponse { text: Some(text), ..CallResponse::default() }),
        };
        let change = match choice {
            ContainerChoice::Machine(name) => machine::ensure(process, name).await?,
            ContainerChoice::Named => None,
        };
        let change = change.map(|change| format!("[{change}]\n")).unwrap_or_default();
        let response = if is_tool {
            let (entry, args) = (call.entry, call.args.clone());
            Box::pin(tools::execute_parsed(&entry, process, Ok(call), &args)).await
        } else {
            // Lost files are reported once, so the report precedes even a failure.
            Box::pin(call.execute(process)).await.map_err(|failure| {
                let message = format!("{change}{}", failure.message);
                failure.with_message(message)
            })?
        };
        let text = format!("{change}{}", text_of(&response));
        Ok(CallResponse { text: Some(text), response: None, ..response })
    }
}

/// What a model reads of an answer.
pub(super) fn text_of(response: &CallResponse) -> String {
    let Some(rendered) = &response.response else {
        return response.brief.clone().or_else(|| response.text.clone()).unwrap_or_default();
    };
    let mut text = rendered.render_for_model();
    for warning in &response.warnings {
        push_line(&mut text, &format!("[warning: {}]", warning.message));
    }
    text
}
