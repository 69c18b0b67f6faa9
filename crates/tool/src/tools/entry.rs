//! A tool as a row: how its arguments are read, and how its answer is rendered.

use coracle_context::config::Toolset;
use coracle_context::failure::{self, Failure};
use coracle_context::model_text;
use coracle_prepare::process::Process;
use coracle_types::Handle;
use coracle_workspace::{Effect, Mode, Response, RunCode, RunCodeResult, Shell, Workspace, with_notes};
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use super::brief::{self, Brief};
use super::chosen_container::{self, ChosenContainer};
use super::shell_output::ShellOutput;
use crate::dispatch::{
    AnswerShape, Audience, CallResponse, OperationEntry, PreparedCall, Problems, SharedFields, read_any,
};
use crate::schema;

type Arguments = Map<String, Value>;

/// What to do when a command in a container of `create` ran out of memory: that of the configuration is not its limit.
const MORE_MEMORY: &str = "do less at once, or `create` a container with a higher `memory_limit`";

impl OperationEntry {
    /// The row of a tool.
    pub(super) const fn tool<T: Brief>() -> Self {
        Self {
            name: T::NAME,
            audience: Audience::Agent,
            sets: &[Toolset::Workspace],
            effect: T::EFFECT,
            aliases: T::ALIASES,
            shape: AnswerShape::Envelope,
            diagnoses: false,
            arguments: tool_arguments::<T>,
            value: schema::json_schema::<T::Value>,
            prepare: prepare_tool::<T>,
        }
    }

    pub(super) const fn shell(name: &'static str) -> Self {
        Self { name, prepare: prepare_shell, ..Self::tool::<Shell>() }
    }

    pub(super) const fn run_code() -> Self {
        Self {
            name: RunCode::NAME,
            sets: &[Toolset::Code],
            aliases: RunCode::ALIASES,
            shape: AnswerShape::Snippet,
            arguments: tool_arguments::<RunCode>,
            value: schema::json_schema::<RunCodeResult>,
            prepare: prepare_snippet,
            ..Self::tool::<Shell>()
        }
    }

    pub(super) const fn shell_output() -> Self {
        Self {
            name: ShellOutput::NAME,
            sets: &[Toolset::Workspace, Toolset::Code],
            effect: Effect::ReadOnly,
            aliases: &[],
            arguments: tool_arguments::<ShellOutput>,
            value: || json!({ "type": "object" }),
            prepare: prepare_shell_output,
            ..Self::tool::<Shell>()
        }
    }

    /// What it answers, in the words of JSON Schema.
    pub fn output(&self) -> Value {
        let value = (self.value)();
        if self.shape == AnswerShape::Snippet { value } else { envelope_schema(&value) }
    }

    /// What it answers, in the words of JSON Schema; nothing where clients get no schema.
    #[must_use]
    pub fn published_output(&self) -> Option<Value> {
        let is_forwarded = matches!(self.shape, AnswerShape::Forwarded { .. });
        (!is_forwarded).then(|| self.output())
    }

    /// The answer of a tool that failed before it did anything.
    pub(crate) fn refused(&self, failure: &Failure) -> CallResponse {
        if self.shape == AnswerShape::Snippet {
            return snippet(&RunCodeResult::failed(failure, &Mode::Container));
        }
        if matches!(self.shape, AnswerShape::Forwarded { .. }) {
            return of_text(failure.answer(None), model_text::of_failure(failure));
        }
        let hint = failure.hint.as_ref().map(|it| format!("\n{it}")).unwrap_or_default();
        let text = format!("{}{hint}", failure.message);
        of_text(Response::<()>::failed((**failure).clone()).envelope(), text)
    }

    /// The answer in the shape of the tool.
    pub(super) fn shaped(&self, response: CallResponse) -> CallResponse {
        if self.shape != AnswerShape::WrappedFields {
            return response;
        }
        let text = serde_json::to_string_pretty(&response.json).unwrap_or_default();
        let brief = model_text::of_json(&Value::Object(response.json.clone()));
        CallResponse { brief: Some(brief), ..of_text(Response::done("Done.", &response.json).envelope(), text) }
    }
}

fn tool_arguments<T: JsonSchema + 'static>() -> schema::Arguments {
    chosen_container::with_field(schema::arguments::<T>())
}

fn prepare_tool<T: Brief>(_: &'static str, mut args: Arguments) -> Result<PreparedCall, Problems> {
    let container = chosen_container::take(&mut args)?;
    Ok(prepared_tool::<T>(container, read_any(args, SharedFields::NONE)?))
}

/// The call of a tool that our own code made.
pub(super) fn prepared_tool<T: Brief>(container: Option<Handle>, tool: T) -> PreparedCall {
    in_workspace(container, |workspace, _| async move { Ok(enveloped::<T>(&tool.run(&workspace).await)) })
}

/// The shell has several names.
fn prepare_shell(name: &'static str, mut args: Arguments) -> Result<PreparedCall, Problems> {
    let container = chosen_container::take(&mut args)?;
    let tool: Shell = read_any(args, SharedFields::NONE)?;
    Ok(in_workspace(container, move |workspace, _| async move {
        Ok(enveloped::<Shell>(&tool.run_as(name, &workspace).await))
    }))
}

fn prepare_snippet(_: &'static str, mut args: Arguments) -> Result<PreparedCall, Problems> {
    let container = chosen_container::take(&mut args)?;
    let tool: RunCode = read_any(args, SharedFields::NONE)?;
    Ok(in_workspace(container, |workspace, _| async move { Ok(snippet(&tool.run(&workspace).await)) }))
}

fn prepare_shell_output(_: &'static str, mut args: Arguments) -> Result<PreparedCall, Problems> {
    let container = chosen_container::take(&mut args)?;
    let tool: ShellOutput = read_any(args, ShellOutput::SHARED)?;
    Ok(in_workspace(container, |workspace, process| async move {
        let value = tool.run(&process.context, &workspace).await?;
        let data = value.get("data").and_then(Value::as_str).map(str::to_owned);
        let rendered = data.unwrap_or_else(|| serde_json::to_string(&value.get("matches")).unwrap_or_default());
        let message = "Read stored output.";
        Ok(of_text(Response::done(message, value).envelope(), format!("{message}\n\n{rendered}")))
    }))
}

/// A call that is given the workspace of its session, or that of the container that it names.
fn in_workspace<F>(
    container: Option<Handle>,
    run: impl FnOnce(Workspace, Process) -> F + Send + 'static,
) -> PreparedCall
where
    F: Future<Output = Result<CallResponse, Failure>> + Send + 'static,
{
    Box::new(move |process| {
        Box::pin(async move {
            let Some(handle) = container else {
                let workspace = process.session_tools()?.for_call(&process.context);
                return run(workspace, process.clone()).await;
            };
            let chosen = ChosenContainer::find(process, &handle).await?;
            let mut response = run(chosen.workspace.clone(), process.clone()).await?;
            if response.json.get("code").and_then(Value::as_str) == Some("out_of_memory") {
                response.json.insert("hint".into(), MORE_MEMORY.into());
            }
            Ok(chosen.redacted(response))
        })
    })
}

fn enveloped<T: Brief>(answer: &Response<T::Value>) -> CallResponse {
    let rendered = T::render(answer);
    let mut object = answer.envelope();
    if let Some(hint) = object.get("code").and_then(Value::as_str).and_then(failure::tool_hint) {
        object.entry("hint").and_modify(|it| {
            if it.is_null() {
                *it = hint.into();
            }
        });
    }
    let text = if rendered.is_empty() { answer.message.clone() } else { format!("{}\n\n{rendered}", answer.message) };
    let text = with_notes(&text, &answer.warnings);
    CallResponse { brief: Some(brief::text::<T>(answer, &text)), ..of_text(object, text) }
}

fn snippet(ran: &RunCodeResult) -> CallResponse {
    let answer = serde_json::to_value(ran).ok().and_then(|it| it.as_object().cloned()).unwrap_or_default();
    of_text(answer, with_notes(&ran.text(), &ran.warnings))
}

fn of_text(json: Map<String, Value>, text: String) -> CallResponse {
    CallResponse { json, text: Some(text), ..CallResponse::default() }
}

fn envelope_schema(value: &Value) -> Value {
    let text = json!({ "type": "string" });
    let flag = json!({ "type": "boolean" });
    json!({
        "type": "object",
        "properties": {
            "message": text,
            "value": { "anyOf": [value, { "type": "null" }] },
            "success": flag,
            "exclude_value_from_context": flag,
            "truncated": flag,
            "omitted": { "type": "integer" },
            "omitted_exact": flag,
            "warnings": { "type": "array", "items": { "type": "object" } },
            "workspace": { "type": "object" },
            "error": text,
            "code": text,
            "hint": { "type": ["string", "null"] },
            "retryable": flag,
            "details": { "type": "object" },
        },
        "required": ["message", "success"],
    })
}
