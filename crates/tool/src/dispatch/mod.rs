//! One operation is one type: its fields are the arguments, its doc comments are their documentation.
//!
//! Reading goes text → object (`parse`) → the operation and its fields (`fields`) → typed arguments (`deserialize`), and
//! everything that is wrong is told at once.

mod call;
mod deserialize;
mod fields;
mod parse;
pub mod tool_schema;
mod value_error;

use std::fmt;
use std::pin::Pin;

use coracle_workspace::Alias;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::context::{Context, Frontend};
use crate::document::Render;
use crate::failure::Failure;
use crate::process::Process;
use crate::{audit, schema};

pub use self::call::{Input, answer, reply};
pub(crate) use self::deserialize::{failure as refusal, read_any};
pub(crate) use self::fields::alone;
pub use self::parse::MAX_BYTES;

/// Who may call an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Agents, and persons.
    Agent,
    /// Only a person at the command line; a front end of agents has no such operation.
    Person,
}

impl Audience {
    fn includes(self, frontend: Frontend) -> bool {
        self == Self::Agent || frontend == Frontend::Cli
    }
}

/// Something that a caller can ask for. Implemented by the struct of its arguments; `S` is what it is given, a [`Process`]
/// where it needs the sandboxes of that.
///
/// Fields that its schema does not have are refused before it is read. An optional field is an `Option` or has `#[serde(default)]`; `null`
/// means absent. A default that the schema shall tell (and that other operations ignore) is
/// `#[schemars(extend("default" = 300))]`. A field of the same name means the same in every operation, to the letter.
pub trait Operation<S = Context>: DeserializeOwned + JsonSchema + Send + 'static {
    /// Its word in a call; of a person's, its words at the command line.
    const NAME: &'static str;
    /// It changes something: it is audited before and after.
    const ACTS: bool = true;
    /// It answers also while the configuration cannot be used.
    const DIAGNOSES: bool = false;
    /// Further names of its fields, where it is a tool of its own.
    const ALIASES: &'static [Alias] = &[];
    /// Fields of the answer but `success`. Serialises as an object.
    type Response: Serialize + Send;

    /// Does it.
    fn run(self, cx: &S) -> impl Future<Output = Result<Self::Response, Failure>> + Send;
}

/// The answer to a call.
pub struct CallResponse {
    /// As programs read it. `success` says whether the operation was carried out.
    pub json: Map<String, Value>,
    /// The response as a person reads it, unless the call failed.
    pub response: Option<Box<dyn Render + Send>>,
}

impl CallResponse {
    /// The answer of a call that failed.
    #[must_use]
    pub fn of_failure(failure: &Failure, operation: Option<&str>) -> Self {
        Self { json: failure.answer(operation), response: None }
    }
}

impl fmt::Debug for CallResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallResponse").field(&self.json).finish()
    }
}

/// The future of a call.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Result<CallResponse, Failure>> + Send + 'a>>;

/// An operation with arguments that have been read.
pub(crate) type Prepared = Box<dyn for<'a> FnOnce(&'a Process) -> Running<'a> + Send>;

/// A row of the table of operations.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its word in a call.
    pub name: &'static str,
    /// Who may call it.
    pub audience: Audience,
    acts: bool,
    diagnoses: bool,
    arguments: fn() -> schema::Arguments,
    prepare: fn(Map<String, Value>) -> Result<Prepared, deserialize::Problems>,
}

impl Entry {
    /// The row of an operation.
    #[must_use]
    pub const fn of<T: Operation<Response: Render + 'static>>() -> Self {
        Self::given::<T, Context>()
    }

    /// The same of one that needs the whole process.
    #[must_use]
    pub const fn of_process<T: Operation<Process, Response: Render + 'static>>() -> Self {
        Self::given::<T, Process>()
    }

    const fn given<T: Operation<S, Response: Render + 'static>, S: Sync + 'static>() -> Self
    where
        Process: AsRef<S>,
    {
        Self {
            name: T::NAME,
            audience: Audience::Agent,
            acts: T::ACTS,
            diagnoses: T::DIAGNOSES,
            arguments: schema::arguments::<T>,
            prepare: prepare::<T, S>,
        }
    }

    /// The same row, for the person at the command line only.
    #[must_use]
    pub const fn for_person(self) -> Self {
        Self { audience: Audience::Person, ..self }
    }

    /// Its fields, in the words of JSON Schema.
    #[must_use]
    pub fn arguments(&self) -> schema::Arguments {
        (self.arguments)()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.name).finish()
    }
}

fn prepare<T: Operation<S, Response: Render + 'static>, S: Sync + 'static>(
    args: Map<String, Value>,
) -> Result<Prepared, deserialize::Problems>
where
    Process: AsRef<S>,
{
    let args: T = deserialize::read(args)?;
    Ok(Box::new(move |process| {
        Box::pin(async move {
            let response = args.run(process.as_ref()).await?;
            Ok(CallResponse { json: fields_of::<T, S>(&response)?, response: Some(Box::new(response)) })
        })
    }))
}

/// Does one, with its line before and after in the audit trail if it changes something.
pub(crate) async fn audited<T: Operation<Process>>(
    process: &Process,
    operation: T,
    args: &Map<String, Value>,
) -> Result<Map<String, Value>, Failure> {
    if !T::ACTS {
        return run(operation, process).await;
    }
    let intent = audit::intent(&process.context, T::NAME, args).await?;
    let result = run(operation, process).await;
    intent.result(&result).await;
    result
}

async fn run<T: Operation<S>, S: Sync>(args: T, given: &S) -> Result<Map<String, Value>, Failure> {
    fields_of::<T, S>(&args.run(given).await?)
}

fn fields_of<T: Operation<S>, S>(response: &T::Response) -> Result<Map<String, Value>, Failure> {
    match serde_json::to_value(response) {
        Ok(Value::Object(answer)) => Ok(answer),
        Ok(other) => Err(Failure::internal(format!("the answer of `{}` is no object: {other}", T::NAME))),
        Err(err) => Err(Failure::internal(format!("the answer of `{}` cannot be written: {err}", T::NAME))),
    }
}
