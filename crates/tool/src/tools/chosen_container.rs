//! The container that a call of a tool names, in place of the session's own.

use std::collections::BTreeMap;

use coracle_context::arg_types::Name;
use coracle_context::failure::{Code, Failure};
use coracle_context::{redaction, warning};
use coracle_lifecycle::Record;
use coracle_prepare::process::Process;
use coracle_runtime::ExecTarget;
use coracle_types::{Handle, Redactor};
use coracle_workspace::{SessionHandle, Warning, Workspace};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::dispatch::{CallResponse, Problems, SharedFields, read_any};
use crate::schema::{self, Arguments};
use crate::target::{CommandTarget, reach_inside};

/// The field, which every tool on files and commands has beside its own.
pub(super) const FIELD: &str = "container";

#[derive(Debug, Deserialize, JsonSchema)]
struct ContainerField {
    /// Container to work in; without it the session's own.
    #[schemars(with = "Option<Name>", extend("x-option" = true))]
    container: Option<Handle>,
}

/// The fields of a tool, with this one last.
pub(super) fn with_field(mut arguments: Arguments) -> Arguments {
    arguments.properties.extend(schema::arguments::<ContainerField>().properties);
    arguments
}

/// Takes the field out of the arguments of a call.
pub(super) fn take(args: &mut Map<String, Value>) -> Result<Option<Handle>, Problems> {
    let given: Map<String, Value> = args.remove_entry(FIELD).into_iter().collect();
    Ok(read_any::<ContainerField>(given, SharedFields::NONE)?.container)
}

/// A container that a call works in, and what is taken out of its answer.
pub(super) struct ChosenContainer {
    pub(super) workspace: Workspace,
    redactor: Redactor,
}

impl ChosenContainer {
    /// Finds it, as `exec` does.
    pub(super) async fn find(process: &Process, handle: &Handle) -> Result<Self, Failure> {
        let cx = &process.context;
        let CommandTarget { record, inside, session } = reach_inside(cx, handle, false).await?;
        let warnings = cx.take_warnings();
        let redactor = redaction::redactor(cx, &record, &inside, &BTreeMap::new()).await?;
        let ExecTarget::Guest(link) = inside else { return Err(no_guest(&record)) };
        let mut on = SessionHandle::own(link, session.user, session.workdir, None);
        on.session_id = record.name.to_string();
        on.env = session.env;
        on.warnings = warnings.into_iter().map(of_tool).collect();
        let live = redaction::live(cx.call.progress.live(), &redactor);
        let workspace = process.session_tools()?.in_container(&record, on).for_call(cx.call.cancel.clone(), live);
        Ok(Self { workspace, redactor })
    }

    /// An answer without the secrets of the container.
    pub(super) fn redacted(&self, mut response: CallResponse) -> CallResponse {
        if self.redactor.is_empty() {
            return response;
        }
        response.json.values_mut().for_each(|it| self.redact(it));
        for text in [&mut response.text, &mut response.brief].into_iter().flatten() {
            *text = self.redactor.clean_strictly(text);
        }
        response
    }

    fn redact(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redactor.clean_strictly(text),
            Value::Array(items) => items.iter_mut().for_each(|it| self.redact(it)),
            Value::Object(fields) => fields.values_mut().for_each(|it| self.redact(it)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

fn of_tool(warning: warning::Warning) -> Warning {
    Warning::new(&warning.code, warning.message)
}

fn no_guest(record: &Record) -> Failure {
    Failure::new(
        Code::Unsupported,
        format!("`{}` has no guest, which handles files and commands of tools", record.name),
    )
    .detail("capability", "guest")
    .hint("run commands in it with `containers` and `exec`, and copy its files with `copy`")
}
