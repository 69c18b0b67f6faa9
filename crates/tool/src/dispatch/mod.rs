//! Each operation is a type: its fields are the arguments, and its doc comments are their documentation.
//!
//! A call goes from text to an object (`parse`), to the operation and its fields (`fields`), to typed arguments
//! (`deserialize`). One failure reports all problems.

#[cfg(test)]
mod audited_fields;
mod call;
mod deserialize;
mod fields;
mod parse;
pub mod tool_schema;
mod value_error;
mod value_reader;

use std::fmt;
use std::pin::Pin;

use coracle_workspace::Alias;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tracing::Instrument as _;

use crate::schema;

use coracle_context::audit;
use coracle_context::config::Toolset;
use coracle_context::context::{Context, Frontend};
use coracle_context::document::Render;
use coracle_context::failure::Failure;
use coracle_context::steps;
use coracle_context::warning::Warning;
use coracle_prepare::process::Process;
pub use coracle_workspace::Effect;

pub(crate) use self::call::ParsedCall;
pub use self::call::{CallInput, execute};
pub use self::deserialize::SharedFields;
pub(crate) use self::deserialize::{Problems, failure as refusal, read_any};
pub(crate) use self::fields::tool_fields;
pub use self::parse::{MAX_BYTES, message as parse_message, object as parse_object};

/// Who may call an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Agents and the user.
    Agent,
    /// Only the user, at the command line or in a browser.
    Person,
    /// Only agents, whose session outlives a call.
    Session,
}

impl Audience {
    fn includes(self, frontend: Frontend) -> bool {
        match self {
            Self::Agent => true,
            Self::Person => frontend.is_of_person(),
            Self::Session => !frontend.is_of_person(),
        }
    }
}

/// An operation that a caller can request, implemented by the struct of its arguments. `S` is its state: the
/// [`Context`] of the call, or the [`Process`] if it needs the sandboxes.
///
/// A field that the schema does not have is refused before the arguments are read. An optional field is an `Option` or
/// has `#[serde(default)]`; `null` means absent. `#[schemars(extend("default" = 300))]` publishes a default in the
/// schema; other operations ignore a field with its default value. A field must mean exactly the same in every
/// operation that has it.
pub trait Operation<S = Context>: DeserializeOwned + JsonSchema + Send + 'static {
    /// The value of `operation` in a call, or the command on the command line.
    const NAME: &'static str;
    /// What it may change. An operation that changes something is audited before and after.
    const EFFECT: Effect;
    /// Whether it also works with an invalid configuration.
    const DIAGNOSES: bool = false;
    /// Fields that it flattens.
    const SHARED: SharedFields = SharedFields::NONE;
    /// Aliases of its fields, if it is a separate tool.
    const ALIASES: &'static [Alias] = &[];
    /// The JSON Schema of the answer.
    const RESULT: fn() -> Value = || json!({ "type": "object" });
    /// Fields of the answer except `success`. Serialises as an object.
    type Response: Serialize + Send;

    /// Executes the operation.
    fn run(self, cx: &S) -> impl Future<Output = Result<Self::Response, Failure>> + Send;
}

/// The answer to a call.
#[derive(Default)]
pub struct CallResponse {
    /// The answer for programs. `success` is whether the operation was executed.
    pub json: Map<String, Value>,
    /// The text for a model, if it differs from `json`.
    pub text: Option<String>,
    /// A shorter text for the toolset `agent`, without repetition.
    pub(crate) brief: Option<String>,
    /// The response to render for the user, unless the call failed.
    pub response: Option<Box<dyn Render + Send>>,
    /// Warnings of a successful call.
    pub warnings: Vec<Warning>,
    /// Images in addition to the text, for a front end that shows them.
    pub images: Vec<ResponseImage>,
}

/// An image in the answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseImage {
    /// The media type, such as `image/png`.
    pub media_type: String,
    /// The bytes as base64.
    pub data: String,
}

impl CallResponse {
    /// The answer to a call that failed.
    #[must_use]
    pub fn of_failure(failure: &Failure, operation: Option<&str>) -> Self {
        Self { json: failure.answer(operation), ..Self::default() }
    }

    /// Whether the call did what was requested.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.json.get("success") == Some(&Value::Bool(true))
    }

    /// Whether the call failed. A command that ran is no failure, with any exit code.
    #[must_use]
    pub fn is_error(&self) -> bool {
        let value = self.json.get("value").and_then(|it| it.get("exit_code"));
        let has_run = value.or_else(|| self.json.get("exitCode")).is_some_and(Value::is_number);
        let was_withdrawn = self.json.get("code").is_some_and(|it| it == "cancelled");
        !self.is_success() && (!has_run || was_withdrawn)
    }
}

impl fmt::Debug for CallResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallResponse").field(&self.json).finish()
    }
}

/// The future of a call.
pub(crate) type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<CallResponse, Failure>> + Send + 'a>>;

/// An operation with parsed arguments, ready to execute.
pub(crate) type PreparedCall = Box<dyn for<'a> FnOnce(&'a Process) -> CallFuture<'a> + Send>;

/// The shape of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerShape {
    /// The fields of the response, and `success`.
    Fields,
    /// The fields of the response as the `value` of a tool's envelope.
    WrappedFields,
    /// The envelope of a tool.
    Envelope,
    /// The flat result of `run_code`.
    Snippet,
    /// The answer of another operation or tool that it calls; a text for the model.
    Forwarded {
        /// Whether fields that this tool does not have are passed on.
        is_open: bool,
    },
}

/// An entry of a table: an operation or a separate tool.
#[derive(Clone, Copy)]
pub struct OperationEntry {
    /// The name of the operation or tool.
    pub name: &'static str,
    /// Who may call it.
    pub audience: Audience,
    /// The toolsets that it belongs to.
    pub sets: &'static [Toolset],
    /// What it may change.
    pub effect: Effect,
    /// Aliases of its fields.
    pub aliases: &'static [Alias],
    pub(crate) shape: AnswerShape,
    pub(crate) diagnoses: bool,
    pub(crate) arguments: fn() -> schema::Arguments,
    /// The JSON Schema of its result.
    pub(crate) value: fn() -> Value,
    /// Parses the arguments of a call by that name.
    pub(crate) prepare: fn(&'static str, Map<String, Value>) -> Result<PreparedCall, Problems>,
}

impl OperationEntry {
    /// The entry of an operation that needs the context of its call.
    #[must_use]
    pub const fn for_operation<T: Operation<Response: Render + 'static>>() -> Self {
        Self::for_request::<T, Context>()
    }

    /// The entry of an operation that needs the whole process.
    #[must_use]
    pub const fn for_process<T: Operation<Process, Response: Render + 'static>>() -> Self {
        Self::for_request::<T, Process>()
    }

    pub(crate) const fn for_request<T: Operation<S, Response: Render + 'static>, S: Sync + 'static>() -> Self
    where
        Process: AsRef<S>,
    {
        Self { prepare: prepare::<T, S>, ..Self::base::<T, S>() }
    }

    /// The entry of an operation that is a separate tool.
    pub(crate) const fn for_tool<T: Operation<Process>>(sets: &'static [Toolset]) -> Self {
        Self { sets, shape: AnswerShape::WrappedFields, ..Self::base::<T, Process>() }
    }

    const fn base<T: Operation<S>, S: Sync + 'static>() -> Self
    where
        Process: AsRef<S>,
    {
        Self {
            name: T::NAME,
            audience: Audience::Agent,
            sets: &[Toolset::Classic],
            effect: T::EFFECT,
            aliases: T::ALIASES,
            shape: AnswerShape::Fields,
            diagnoses: T::DIAGNOSES,
            arguments: schema::arguments::<T>,
            value: T::RESULT,
            prepare: prepare_bare::<T, S>,
        }
    }

    /// The same entry, only for the user.
    #[must_use]
    pub const fn for_person(self) -> Self {
        Self { audience: Audience::Person, ..self }
    }

    /// The JSON Schema of its input.
    #[must_use]
    pub fn input(&self) -> Map<String, Value> {
        let mut schema = schema::alone(&self.arguments());
        if (self.shape == AnswerShape::Forwarded { is_open: true }) {
            schema.insert("additionalProperties".into(), true.into());
        }
        schema
    }

    /// The same entry, only for agents whose session outlives a call.
    #[must_use]
    pub const fn for_session(self) -> Self {
        Self { audience: Audience::Session, ..self }
    }

    /// Its fields as JSON Schema.
    #[must_use]
    pub fn arguments(&self) -> schema::Arguments {
        (self.arguments)()
    }

    /// The JSON Schema of its answer.
    #[must_use]
    pub fn result(&self) -> Value {
        let mut schema = (self.value)();
        if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            fields
                .entry("warnings")
                .or_insert_with(|| json!({ "type": "array", "items": schema::result_schema::<Warning>() }));
        }
        schema
    }

    /// Executes a call in a span `operation` with `name`, `session` and `code`. If it changes something, the audit
    /// trail gets a line before and after. A forwarding tool has a span `tool_call` instead, and no lines: the
    /// operation that it calls has them.
    pub(crate) async fn run(
        &self,
        prepared: PreparedCall,
        process: &Process,
        args: &Map<String, Value>,
    ) -> Result<CallResponse, Failure> {
        let (name, session) = (self.name, process.context.call.session.as_str());
        let is_forwarded = matches!(self.shape, AnswerShape::Forwarded { .. });
        let span = match is_forwarded {
            true => tracing::debug_span!("tool_call", name, session, code = tracing::field::Empty),
            false => tracing::debug_span!("operation", name, session, code = tracing::field::Empty),
        };
        let work = async {
            if self.effect == Effect::ReadOnly || is_forwarded {
                return prepared(process).await;
            }
            let intent = audit::intent(&process.context, &self.name.replace(' ', "_"), self.effect, args).await?;
            let result = prepared(process).await;
            steps::after_call(&process.context, &step_note(self.name, args, &result)).await;
            intent.finish(result.as_ref().map(|response| &response.json)).await;
            result
        };
        let result = work.instrument(span.clone()).await;
        if !span.is_disabled() {
            span.record("code", result_code(&result));
        }
        result
    }
}

/// Maximum number of characters of a command in the note of a step.
const MAX_NOTED: usize = 200;

/// What the timeline shows of a call: the command, or the operation with the path that it changes; and the exit code of a
/// command that failed.
fn step_note(name: &str, args: &Map<String, Value>, result: &Result<CallResponse, Failure>) -> String {
    let command = match args.get("command").or_else(|| args.get("code")) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Array(words)) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    };
    let path = args.get("path").or_else(|| args.get("container_path")).and_then(Value::as_str);
    let text = match (command, path) {
        (Some(command), _) => command,
        (None, Some(path)) => format!("{name} {path}"),
        (None, None) => name.to_owned(),
    };
    let mut note: String = text.chars().take(MAX_NOTED).collect();
    let exit_code = result.as_ref().ok().and_then(|it| it.json.get("exit_code")).and_then(Value::as_u64);
    if let Some(code @ 1..) = exit_code {
        note += &format!(" (exit {code})");
    }
    note
}

/// Executes a request of Coracle itself, like any other call. `fields` are what the audit trail records of it.
///
/// # Errors
/// Those of the operation, worded for the front end.
pub async fn execute_request<T>(process: &Process, request: T, fields: Value) -> Result<CallResponse, Failure>
where
    T: Operation<Response: Render + 'static>,
{
    let Value::Object(args) = fields else { return Err(Failure::internal("the fields of a call are no object")) };
    let call = ParsedCall::new::<T, Context>(request, args);
    call.execute(process).await.map_err(|failure| failure.for_reader(&process.context.reader()))
}

/// Executes a request that changes nothing, and returns its typed answer.
///
/// # Errors
/// Those of the operation, worded for the front end.
pub async fn query<T: Operation>(process: &Process, request: T) -> Result<T::Response, Failure> {
    const { assert!(matches!(T::EFFECT, Effect::ReadOnly), "an operation that changes something has to be audited") };
    let cx = &process.context;
    let span = tracing::debug_span!("operation", name = T::NAME, session = cx.call.session.as_str());
    let work = async {
        cx.configured()?;
        request.run(cx).await
    };
    work.instrument(span).await.map_err(|failure| failure.for_reader(&cx.reader()))
}

/// `ok`, or the code of the failure. A command that ran is `ok`, with any exit code.
fn result_code(result: &Result<CallResponse, Failure>) -> String {
    match result {
        Err(failure) => failure.code.word(),
        Ok(response) => {
            let code = response.json.get("code").and_then(Value::as_str);
            // Some answers have no `success` yet.
            let has_failed = response.json.contains_key("success") && response.is_error();
            code.filter(|_| has_failed).unwrap_or("ok").to_owned()
        }
    }
}

impl fmt::Debug for OperationEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OperationEntry").field(&self.name).finish()
    }
}

fn prepare<T: Operation<S, Response: Render + 'static>, S: Sync + 'static>(
    _: &'static str,
    args: Map<String, Value>,
) -> Result<PreparedCall, Problems>
where
    Process: AsRef<S>,
{
    Ok(prepared::<T, S>(deserialize::read(args, T::SHARED)?))
}

/// The call of a request that is already typed.
fn prepared<T: Operation<S, Response: Render + 'static>, S: Sync + 'static>(request: T) -> PreparedCall
where
    Process: AsRef<S>,
{
    Box::new(move |process| {
        Box::pin(async move {
            let response = request.run(process.as_ref()).await?;
            let json = fields_of::<T, S>(&response)?;
            Ok(CallResponse { json, response: Some(Box::new(response)), ..CallResponse::default() })
        })
    })
}

/// Like [`prepare`], for an operation whose response is not rendered for the user.
fn prepare_bare<T: Operation<S>, S: Sync + 'static>(
    _: &'static str,
    args: Map<String, Value>,
) -> Result<PreparedCall, Problems>
where
    Process: AsRef<S>,
{
    let args: T = read_any(args, T::SHARED)?;
    Ok(Box::new(move |process| {
        Box::pin(async move {
            let json = fields_of::<T, S>(&args.run(process.as_ref()).await?)?;
            Ok(CallResponse { json, ..CallResponse::default() })
        })
    }))
}

fn fields_of<T: Operation<S>, S>(response: &T::Response) -> Result<Map<String, Value>, Failure> {
    match serde_json::to_value(response) {
        Ok(Value::Object(answer)) => Ok(answer),
        Ok(other) => Err(Failure::internal(format!("the answer of `{}` is no object: {other}", T::NAME))),
        Err(err) => Err(Failure::internal(format!("the answer of `{}` cannot be written: {err}", T::NAME))),
    }
}
