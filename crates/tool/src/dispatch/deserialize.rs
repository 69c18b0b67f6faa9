//! Converts fields to typed arguments. Reports all problems, not only the first.

use coracle_context::failure::{Code, Failure};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::value_error::ValuePlace;
use super::value_reader::{self, Misfit, MisfitReason, Segment, shown};
use crate::schema::{self, Arguments};

/// One problem of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Problem {
    /// The path of the field, such as `mounts[0].host`.
    pub(crate) field: String,
    pub(crate) code: Code,
    pub(crate) message: String,
    #[serde(skip)]
    pub(crate) hint: Option<String>,
    /// Valid names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) known: Option<Vec<String>>,
}

/// The problems of a call; at least one.
pub(crate) type Problems = Vec<Problem>;

impl Problem {
    pub(crate) fn new(field: &str, code: Code, message: impl Into<String>) -> Self {
        Self { field: field.to_owned(), code, message: message.into(), hint: None, known: None }
    }
}

/// The first problem as a failure, with all of them in `details.problems`.
pub(crate) fn failure(problems: &Problems) -> Failure {
    let Some(first) = problems.first() else { return Failure::internal("a call was refused without a reason") };
    let failure = Failure::new(first.code, message(first, problems)).detail("problems", problems);
    let failure = match first.code {
        Code::MissingField => failure.detail("fields", missing(problems)),
        Code::UnknownField => failure.detail("name", &first.field).detail("known", &first.known),
        Code::InvalidName => {
            let grammar = first.message.rsplit_once(": ").map_or(first.message.as_str(), |(_, grammar)| grammar);
            failure.detail("field", &first.field).detail("grammar", grammar)
        }
        _ => failure.detail("field", &first.field),
    };
    match &first.hint {
        Some(hint) => failure.hint(hint),
        None => failure.hint(format!("correct `{}`; `details.problems` has everything that is wrong", first.field)),
    }
}

fn message(first: &Problem, problems: &Problems) -> String {
    match first.code {
        Code::MissingField => {
            let names: Vec<String> = missing(problems).iter().map(|it| format!("`{it}`")).collect();
            format!("required: {}", names.join(", "))
        }
        Code::InvalidInput => format!("`{}`: {}", first.field, first.message),
        _ => first.message.clone(),
    }
}

fn missing(problems: &Problems) -> Vec<&str> {
    problems.iter().filter(|it| it.code == Code::MissingField).map(|it| it.field.as_str()).collect()
}

/// Fields that several requests share through `#[serde(flatten)]`. They are also read separately, because serde's error
/// for a flattened field has no path.
#[derive(Clone, Copy, Debug)]
pub struct SharedFields(fn(&Map<String, Value>) -> Result<(), Misfit>);

impl SharedFields {
    /// A request that flattens nothing.
    pub const NONE: Self = Self(|_| Ok(()));

    /// A request that flattens `T`.
    #[must_use]
    pub const fn for_type<T: DeserializeOwned>() -> Self {
        Self(|args| value_reader::read::<T>(args).map(drop))
    }

    fn wrong_value(self, args: &Map<String, Value>) -> Option<Misfit> {
        (self.0)(args).err().filter(|it| !top_of(it).is_empty())
    }
}

/// Reads arguments. After an error it removes the invalid field and reads again, so that it finds all invalid fields.
pub(super) fn read<T: DeserializeOwned + JsonSchema + 'static>(
    mut args: Map<String, Value>,
    shared: SharedFields,
) -> Result<T, Problems> {
    let problems = take_fields_with_zero_bytes(&mut args);
    read_with::<T>(args, shared, problems)
}

/// Like [`read`], but allows zero bytes in texts.
pub(crate) fn read_any<T: DeserializeOwned + JsonSchema + 'static>(
    args: Map<String, Value>,
    shared: SharedFields,
) -> Result<T, Problems> {
    read_with::<T>(args, shared, Vec::new())
}

fn read_with<T: DeserializeOwned + JsonSchema + 'static>(
    mut args: Map<String, Value>,
    shared: SharedFields,
    mut problems: Problems,
) -> Result<T, Problems> {
    let known = schema::arguments::<T>();
    let mut found = Vec::new();
    loop {
        let read = shared.wrong_value(&args).map_or_else(|| value_reader::read(&args), Err);
        match read {
            Ok(read) if problems.is_empty() && found.is_empty() => return Ok(read),
            Ok(_) => break,
            Err(err) => {
                let top = top_of(&err).to_owned();
                let Some(value) = args.remove(&top) else {
                    // A removed field is now missing, or the fields contradict each other.
                    if problems.is_empty() && found.is_empty() {
                        found.push(Problem::new("", Code::InvalidInput, err.to_string()));
                    }
                    break;
                };
                found.push(problem(&err, &value, &known));
            }
        }
    }
    found.sort_by(|a, b| a.field.cmp(&b.field));
    problems.extend(found);
    Err(problems)
}

/// The first field of a path.
fn top_of(err: &Misfit) -> &str {
    match err.path().next() {
        Some(Segment::Field(name)) => name,
        _ => "",
    }
}

fn problem(err: &Misfit, value: &Value, known: &Arguments) -> Problem {
    let path = shown(err.path());
    match &err.reason {
        MisfitReason::UnknownField { name, known } => {
            let names: Vec<String> = known.iter().map(|it| format!("`{it}`")).collect();
            let hint = (!names.is_empty()).then(|| format!("its fields are {}", names.join(", ")));
            let message = format!("`{path}` has no field `{name}`");
            Problem { hint, ..Problem::new(&format!("{path}.{name}"), Code::UnknownField, message) }
        }
        MisfitReason::Message(message) if known.is_name(&path) && value.is_string() => {
            let hint = message.rsplit_once(": ").map(|(_, grammar)| format!("use {grammar}"));
            Problem { hint, ..Problem::new(&path, Code::InvalidName, message.clone()) }
        }
        reason => {
            let message = ValuePlace::follow(err.path(), value, known).explain(reason);
            Problem::new(&path, Code::InvalidInput, message)
        }
    }
}

/// Removes fields with a zero byte, since texts become arguments of engines and paths.
fn take_fields_with_zero_bytes(args: &mut Map<String, Value>) -> Problems {
    let bad: Vec<String> = args.iter().filter(|(_, value)| has_zero(value)).map(|(name, _)| name.clone()).collect();
    bad.iter()
        .map(|name| {
            args.remove(name);
            Problem::new(name, Code::InvalidInput, "has a NUL byte")
        })
        .collect()
}

fn has_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_zero),
        Value::Object(fields) => fields.iter().any(|(name, value)| name.contains('\0') || has_zero(value)),
        _ => false,
    }
}
