//! A tool as a row: how its arguments are read, and how its answer is told.

use std::fmt;
use std::pin::Pin;

use coracle_workspace::{Alias, Effect, Mode, Response, RunCode, RunCodeResult, Shell, Tool, Workspace, with_notes};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::shell_output::ShellOutput;
use crate::config::Toolset;
use crate::dispatch::{self, Operation};
use crate::failure::{self, Failure};
use crate::process::Process;
use crate::schema::{self, Arguments};

/// What a tool said: the object for programs, and the text for a model.
#[derive(Clone, Debug)]
pub struct Said {
    /// The envelope; of `run_code` its own flat result.
    pub answer: Map<String, Value>,
    /// Message and rendered value.
    pub text: String,
}

impl Said {
    /// Whether the tool did what was asked.
    pub fn success(&self) -> bool {
        self.answer.get("success") == Some(&Value::Bool(true))
    }

    /// Whether the call was not carried out. A command that ran was, whatever became of it: the answer says how it ended.
    pub fn is_error(&self) -> bool {
        let value = self.answer.get("value").and_then(|it| it.get("exit_code"));
        let has_run = value.or_else(|| self.answer.get("exitCode")).is_some_and(Value::is_number);
        let was_withdrawn = self.answer.get("code").is_some_and(|it| it == "cancelled");
        !self.success() && (!has_run || was_withdrawn)
    }
}

type SaidFuture = Pin<Box<dyn Future<Output = Said> + Send>>;
type Call = fn(&'static str, Map<String, Value>, Workspace, Process) -> SaidFuture;

/// A row of the table of tools.
#[derive(Clone, Copy)]
pub struct ToolEntry {
    /// The tool's name.
    pub name: &'static str,
    /// The sets that it belongs to.
    pub sets: &'static [Toolset],
    /// Whether it changes something.
    pub effect: Effect,
    /// Further names of its fields.
    pub aliases: &'static [Alias],
    arguments: fn() -> Arguments,
    value: fn() -> Value,
    pub(super) call: Call,
    kind: Kind,
}

/// How an answer is shaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Envelope,
    Shell,
    Flat,
}

impl fmt::Debug for ToolEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolEntry").field(&self.name).finish()
    }
}

impl ToolEntry {
    pub(super) const fn of<T: Tool>() -> Self {
        Self {
            name: T::NAME,
            sets: &[Toolset::Workspace],
            effect: T::EFFECT,
            aliases: T::ALIASES,
            arguments: schema::arguments::<T>,
            value: value_schema::<T::Value>,
            call: |_, args, workspace, _| {
                call(args, refused, |tool: T| async move { said::<T>(&tool.run(&workspace).await) })
            },
            kind: Kind::Envelope,
        }
    }

    pub(super) const fn shell(name: &'static str) -> Self {
        let call: Call = |name, args, workspace, _| {
            call(args, refused, move |tool: Shell| async move { said::<Shell>(&tool.run_as(name, &workspace).await) })
        };
        Self { name, call, kind: Kind::Shell, ..Self::of::<Shell>() }
    }

    pub(super) const fn run_code() -> Self {
        Self {
            name: RunCode::NAME,
            sets: &[Toolset::Code],
            effect: Effect::Mutating,
            aliases: RunCode::ALIASES,
            arguments: schema::arguments::<RunCode>,
            value: value_schema::<RunCodeResult>,
            call: |_, args, workspace, _| {
                call(args, flat_refused, |tool: RunCode| async move { flat(&tool.run(&workspace).await) })
            },
            kind: Kind::Flat,
        }
    }

    pub(super) const fn shell_output() -> Self {
        Self {
            name: ShellOutput::NAME,
            sets: &[Toolset::Workspace, Toolset::Code],
            effect: Effect::ReadOnly,
            aliases: &[],
            arguments: schema::arguments::<ShellOutput>,
            value: || json!({ "type": "object" }),
            call: |_, args, workspace, process| {
                call(args, refused, |tool: ShellOutput| async move {
                    let read = tool.run(&process.context, &workspace).await;
                    read.map_or_else(|failure| refused(&failure), |value| shell_output(&value))
                })
            },
            kind: Kind::Envelope,
        }
    }

    /// An operation that is a tool of its own.
    pub(super) const fn operation<T: Operation<Process>>(sets: &'static [Toolset]) -> Self {
        Self {
            name: T::NAME,
            sets,
            effect: if T::ACTS { Effect::Mutating } else { Effect::ReadOnly },
            aliases: T::ALIASES,
            arguments: schema::arguments::<T>,
            value: || json!({ "type": "object" }),
            call: |_, args, _, process| {
                call(args.clone(), refused, |operation: T| async move {
                    let done = dispatch::audited(&process, operation, &args).await;
                    done.map_or_else(|failure| refused(&failure), |value| done_object(&value))
                })
            },
            kind: Kind::Envelope,
        }
    }

    pub(crate) fn is_shell(&self) -> bool {
        self.kind == Kind::Shell
    }

    /// Its fields, in the words of JSON Schema.
    pub fn arguments(&self) -> Arguments {
        (self.arguments)()
    }

    /// What it answers, in the same words.
    pub fn output(&self) -> Value {
        let value = (self.value)();
        if self.kind == Kind::Flat { value } else { envelope_schema(&value) }
    }

    /// A call that never came to the tool.
    pub(crate) fn refused(&self, failure: &Failure) -> Said {
        if self.kind == Kind::Flat { flat_refused(failure) } else { refused(failure) }
    }
}

fn said<T: Tool>(answer: &Response<T::Value>) -> Said {
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
    Said { answer: object, text: with_notes(&text, &answer.warnings) }
}

fn flat(ran: &RunCodeResult) -> Said {
    let answer = serde_json::to_value(ran).ok().and_then(|it| it.as_object().cloned()).unwrap_or_default();
    Said { answer, text: with_notes(&ran.text(), &ran.warnings) }
}

fn flat_refused(failure: &Failure) -> Said {
    flat(&RunCodeResult::failed(failure, &Mode::Container))
}

fn refused(failure: &Failure) -> Said {
    let hint = failure.hint.as_ref().map(|it| format!("\n{it}")).unwrap_or_default();
    let text = format!("{}{hint}", failure.message);
    Said { answer: Response::<()>::failed((**failure).clone()).envelope(), text }
}

fn done_object(value: &Map<String, Value>) -> Said {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    Said { answer: Response::done("Done.", value).envelope(), text }
}

fn shell_output(value: &Map<String, Value>) -> Said {
    let data = value.get("data").and_then(Value::as_str).map(str::to_owned);
    let rendered = data.unwrap_or_else(|| serde_json::to_string(&value.get("matches")).unwrap_or_default());
    let message = "Read kept output.";
    Said { answer: Response::done(message, value).envelope(), text: format!("{message}\n\n{rendered}") }
}

/// Reads the arguments and runs the tool with them.
fn call<T, F>(
    args: Map<String, Value>,
    refused: fn(&Failure) -> Said,
    run: impl FnOnce(T) -> F + Send + 'static,
) -> SaidFuture
where
    T: DeserializeOwned + JsonSchema + Send + 'static,
    F: Future<Output = Said> + Send,
{
    Box::pin(async move {
        match dispatch::read_any::<T>(args) {
            Ok(tool) => run(tool).await,
            Err(problems) => refused(&dispatch::refusal(&problems)),
        }
    })
}

fn value_schema<T: JsonSchema>() -> Value {
    schema::of::<T>()
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
