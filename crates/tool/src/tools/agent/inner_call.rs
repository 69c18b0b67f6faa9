//! The call that a small tool stands for.

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super as tools;
use super::{machine, response_text};
use crate::dispatch::{self, CallResponse, OperationEntry};
use crate::failure::Failure;
use crate::operations;
use crate::process::Process;

/// What a small tool does.
#[derive(Debug)]
pub(super) enum InnerCall {
    /// It calls an operation or a session tool.
    Callee(&'static OperationEntry, Map<String, Value>),
    /// It answers that.
    Text(String),
}

/// The field that the session's machine stands in for.
const CONTAINER: &str = "container";

/// Operations whose container has to be named: to remove the machine by an omission would be a surprise.
const NAMED: &[&str] = &["destroy", "wait_healthy"];

impl InnerCall {
    /// That operation with those fields; an unset field is left out.
    pub(super) fn operation(name: &str, fields: impl Serialize) -> Result<Self, Failure> {
        Self::named(operations::ALL, name, fields)
    }

    /// That session tool.
    pub(super) fn tool(name: &str, fields: impl Serialize) -> Result<Self, Failure> {
        Self::named(tools::ALL, name, fields)
    }

    fn named(table: &'static [OperationEntry], name: &str, fields: impl Serialize) -> Result<Self, Failure> {
        let callee = table.iter().find(|it| it.name == name);
        Self::entry(callee.ok_or_else(|| Failure::internal(format!("there is no `{name}`")))?, fields)
    }

    /// That row of a table.
    pub(super) fn entry(callee: &'static OperationEntry, fields: impl Serialize) -> Result<Self, Failure> {
        match serde_json::to_value(fields).map_err(Failure::internal)? {
            Value::Object(fields) => {
                Ok(Self::Callee(callee, fields.into_iter().filter(|it| !it.1.is_null()).collect()))
            }
            _ => Err(Failure::internal(format!("the fields of `{}` are no object", callee.name))),
        }
    }

    /// Does it, on the session's machine unless it names a container.
    pub(super) async fn run(self, process: &Process) -> Result<CallResponse, Failure> {
        let (callee, mut fields) = match self {
            Self::Callee(callee, fields) => (callee, fields),
            Self::Text(text) => return Ok(CallResponse { text: Some(text), ..CallResponse::default() }),
        };
        let mut news = String::new();
        if is_on_machine(callee, &fields) {
            let name = machine::name_of(&process.context)?;
            fields.insert(CONTAINER.into(), json!(name));
            // A call that is wrong makes no machine.
            check(callee, fields.clone())?;
            news = machine::ensure(process, name).await?.map(|it| format!("[{it}]\n")).unwrap_or_default();
        }
        // That files were lost is told once, so it stands before a failure, too.
        let response = respond(callee, process, fields).await.map_err(|failure| {
            let message = format!("{news}{}", failure.message);
            failure.with_message(message)
        })?;
        let text = format!("{news}{}", response_text::text_of(callee.name, &response));
        Ok(CallResponse { text: Some(text), response: None, ..response })
    }
}

/// Whether the callee works in a container and none is named.
fn is_on_machine(callee: &OperationEntry, fields: &Map<String, Value>) -> bool {
    let takes_one = || callee.arguments().properties.contains_key(CONTAINER);
    let names_one = [CONTAINER, "workflow"].iter().any(|it| fields.contains_key(*it));
    !NAMED.contains(&callee.name) && !names_one && takes_one()
}

fn is_operation(callee: &'static OperationEntry) -> bool {
    operations::ALL.iter().any(|it| std::ptr::eq(it, callee))
}

/// The fields of the call that an operation's caller sends.
fn of_operation(callee: &OperationEntry, mut fields: Map<String, Value>) -> Map<String, Value> {
    fields.insert("operation".into(), callee.name.into());
    fields
}

fn check(callee: &'static OperationEntry, fields: Map<String, Value>) -> Result<(), Failure> {
    match is_operation(callee) {
        true => dispatch::check(operations::ALL, of_operation(callee, fields)),
        false => tools::check(callee, fields),
    }
}

async fn respond(
    callee: &'static OperationEntry,
    process: &Process,
    fields: Map<String, Value>,
) -> Result<CallResponse, Failure> {
    match is_operation(callee) {
        true => Box::pin(dispatch::carry_out(operations::ALL, process, of_operation(callee, fields))).await,
        false => Ok(Box::pin(tools::call(callee, process, fields)).await),
    }
}
