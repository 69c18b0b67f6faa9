//! Fields to typed arguments, with everything that is wrong.

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

use super::value_error::ValuePlace;
use crate::failure::{Code, Failure};
use crate::schema::{self, Arguments};

/// One fault of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Problem {
    /// Where: `mounts[0].host`.
    pub(crate) field: String,
    pub(crate) code: Code,
    pub(crate) message: String,
    #[serde(skip)]
    pub(crate) hint: Option<String>,
    /// Names that would have been right.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) known: Option<Vec<String>>,
}

/// What is wrong with a call; at least one.
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

/// Reads arguments. A field that is wrong is taken out and reading begins again, so that all are found.
pub(super) fn read<T: DeserializeOwned + JsonSchema + 'static>(mut args: Map<String, Value>) -> Result<T, Problems> {
    let problems = zeros(&mut args);
    read_with::<T>(args, problems)
}

/// The same where a zero byte may be what is meant.
pub(crate) fn read_any<T: DeserializeOwned + JsonSchema + 'static>(args: Map<String, Value>) -> Result<T, Problems> {
    read_with::<T>(args, Vec::new())
}

fn read_with<T: DeserializeOwned + JsonSchema + 'static>(
    mut args: Map<String, Value>,
    mut problems: Problems,
) -> Result<T, Problems> {
    let known = schema::arguments::<T>();
    loop {
        match attempt::<T>(&args) {
            Ok(read) if problems.is_empty() => return Ok(read),
            Ok(_) => break,
            Err(err) => {
                let top = top_of(&err.path);
                let Some(value) = args.remove(&top) else {
                    // A field that was taken out is missing now, or the whole does not fit together.
                    if problems.is_empty() {
                        problems.push(Problem::new("", Code::InvalidInput, whole(&err.message)));
                    }
                    break;
                };
                problems.push(problem(&err, &top, &value, &known));
            }
        }
    }
    Err(problems)
}

/// What does not fit its type, and where it is.
struct Misfit {
    path: serde_path_to_error::Path,
    message: String,
}

/// Through a trait object: what follows the path would be compiled once for each type of argument otherwise, and be a
/// twentieth of the program.
fn attempt<T: DeserializeOwned>(args: &Map<String, Value>) -> Result<T, Misfit> {
    let (args, mut track) = (Value::Object(args.clone()), serde_path_to_error::Track::new());
    let tracked = serde_path_to_error::Deserializer::new(args, &mut track);
    let read = erased_serde::deserialize(&mut <dyn erased_serde::Deserializer<'_>>::erase(tracked));
    read.map_err(|err| Misfit { message: err.to_string(), path: track.path() })
}

/// The field of the call that a path begins with.
fn top_of(path: &serde_path_to_error::Path) -> String {
    match path.iter().next() {
        Some(Segment::Map { key }) => key.clone(),
        _ => String::new(),
    }
}

/// Of the call itself, not of one of its fields.
fn whole(message: &str) -> String {
    let twice = message.strip_prefix("duplicate field ");
    twice.map_or_else(|| message.to_owned(), |field| format!("{field} is given twice, once by another name"))
}

fn problem(err: &Misfit, top: &str, value: &Value, known: &Arguments) -> Problem {
    let (path, message) = (err.path.to_string(), err.message.clone());
    // The words of `deny_unknown_fields` and of a missing field, which serde gives no other sign of.
    if let Some(name) = message.strip_prefix("unknown field `").and_then(|it| it.split('`').next()) {
        let holder = path.rsplit_once('.').map_or(path.as_str(), |(holder, _)| holder);
        let problem = Problem::new(&path, Code::UnknownField, format!("`{holder}` has no field `{name}`"));
        let names: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        let names: Vec<String> = names.iter().map(|it| format!("`{it}`")).collect();
        let hint = (!names.is_empty()).then(|| format!("its fields are {}", names.join(", ")));
        return Problem { hint, ..problem };
    }
    if known.is_name(&path) && value.is_string() {
        let hint = message.rsplit_once(": ").map(|(_, grammar)| format!("use {grammar}"));
        return Problem { hint, ..Problem::new(&path, Code::InvalidName, message) };
    }
    let place = ValuePlace::of(&err.path, (top, value), known.properties.get(top));
    Problem::new(&path, Code::InvalidInput, place.explain(&message))
}

/// No text that reaches an engine or a path may hold a zero byte.
fn zeros(args: &mut Map<String, Value>) -> Problems {
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
