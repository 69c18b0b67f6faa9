//! Explains an invalid value to the caller: the field, the given value, and the expected form with an example.
//!
//! serde's errors name types of Rust, but a caller knows only the published schema.

use serde_json::{Value, json};

use super::value_reader::{MisfitReason, Segment};
use crate::schema::Arguments;

/// The longest text that a message repeats, in characters.
const MAX_SHOWN: usize = 60;

/// Fields whose values may be secret, so messages do not repeat them.
const PRIVATE: [&str; 5] = ["env", "stdin", "stdin_base64", "config_files", "dotfiles_inline"];

/// A value of a call: a field's value, or a value inside it.
pub(super) struct ValuePlace<'a> {
    /// The field of the call.
    field: &'a str,
    value: Option<&'a Value>,
    schema: Option<&'a Value>,
}

impl<'a> ValuePlace<'a> {
    /// Follows a path, whose first segment is the field itself, through the field's value and schema.
    pub(super) fn follow(mut path: impl Iterator<Item = &'a Segment>, value: &'a Value, known: &'a Arguments) -> Self {
        let field = match path.next() {
            Some(Segment::Field(name)) => name.as_str(),
            _ => "",
        };
        let mut place = Self { field, value: Some(value), schema: known.properties.get(field) };
        for segment in path {
            let (value, schema) = (place.value, place.schema);
            (place.value, place.schema) = match segment {
                Segment::Index(index) => (value.and_then(|it| it.get(*index)), schema.and_then(|it| it.get("items"))),
                Segment::Field(name) => {
                    let named = schema.and_then(|it| it.get("properties")).and_then(|it| it.get(name));
                    let any = schema.and_then(|it| it.get("additionalProperties"));
                    (value.and_then(|it| it.get(name)), named.or(any))
                }
            };
        }
        place
    }

    /// Explains why the value does not fit.
    pub(super) fn explain(&self, reason: &MisfitReason) -> String {
        let expected = match reason {
            MisfitReason::Unfit(expected) => plain(expected),
            MisfitReason::UnknownWord(known) => one_of(known),
            MisfitReason::MissingField(field) => {
                return format!("`{field}` is missing; expected {}", self.expected(None));
            }
            MisfitReason::DuplicateField(field) => return format!("`{field}` is given twice, once by another name"),
            MisfitReason::UnknownField { name, .. } => return format!("it has no field `{name}`"),
            MisfitReason::Message(message) => return message.clone(),
        };
        format!("{} was given; expected {}", self.given(), self.expected(expected))
    }

    /// The given value, shortened.
    fn given(&self) -> String {
        let Some(value) = self.value else { return "something else".to_owned() };
        let is_private = PRIVATE.contains(&self.field);
        match value {
            Value::Array(_) => "a list".to_owned(),
            Value::Object(_) => "an object".to_owned(),
            Value::String(_) if is_private => "a string".to_owned(),
            Value::Number(_) if is_private => "a number".to_owned(),
            Value::String(text) if text.chars().count() > MAX_SHOWN => {
                format!("a string of {} characters", text.chars().count())
            }
            other => format!("`{other}`"),
        }
    }

    fn expected(&self, expected: Option<String>) -> String {
        let Some(schema) = self.schema else { return expected.unwrap_or_else(|| "something else".to_owned()) };
        let expected = expected.unwrap_or_else(|| described(schema));
        // Coracle's own types describe themselves with an example.
        if expected.contains("such as") {
            return expected;
        }
        let examples: Vec<String> = examples(schema).iter().map(|it| format!("`{it}`")).collect();
        if examples.is_empty() { expected } else { format!("{expected}, such as {}", examples.join(" or ")) }
    }
}

/// What serde expects, in words of JSON. `None` for Rust types that the schema describes better.
fn plain(expected: &str) -> Option<String> {
    let whole = |most: &str| Some(format!("a whole number from 0 to {most}"));
    match expected {
        "u8" => whole("255"),
        "u16" => whole("65535"),
        "u32" => whole("4294967295"),
        "u64" | "usize" => Some("a whole number from 0".to_owned()),
        "i8" | "i16" | "i32" | "i64" | "isize" => Some("a whole number".to_owned()),
        "f32" | "f64" => Some("a number".to_owned()),
        "a boolean" => Some("`true` or `false`".to_owned()),
        "a string" | "a borrowed string" | "a map" | "a sequence" | "string or map" | "unit" | "null" => None,
        _ if ["struct ", "enum ", "variant ", "tuple ", "newtype ", "unit ", "internally ", "adjacently ", "any "]
            .iter()
            .any(|it| expected.starts_with(it)) =>
        {
            None
        }
        other => Some(other.to_owned()),
    }
}

fn one_of(known: &[&str]) -> Option<String> {
    let words: Vec<String> = known.iter().map(|it| format!("`{it}`")).collect();
    match words.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("one of {}", several.join(", "))),
    }
}

/// Describes the values that a schema allows.
fn described(schema: &Value) -> String {
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        let words: Vec<String> = words.iter().map(|it| format!("`{}`", text_of(it))).collect();
        return format!("one of {}", words.join(", "));
    }
    let kinds: Vec<String> = types(schema).iter().filter_map(|kind| of_type(kind, schema)).collect();
    if kinds.is_empty() { "another value".to_owned() } else { kinds.join(" or ") }
}

fn of_type(kind: &str, schema: &Value) -> Option<String> {
    Some(match kind {
        "string" => "a string".to_owned(),
        "integer" => "a whole number".to_owned(),
        "number" => "a number".to_owned(),
        "boolean" => "`true` or `false`".to_owned(),
        "array" => match schema.get("items") {
            Some(items) => format!("a list of {}", plural(items)),
            None => "a list".to_owned(),
        },
        "object" => match schema.get("properties").and_then(Value::as_object) {
            Some(fields) => {
                let names: Vec<String> = fields.keys().map(|it| format!("`{it}`")).collect();
                format!("an object of {}", names.join(", "))
            }
            None => "an object of names and values".to_owned(),
        },
        _ => return None,
    })
}

fn plural(items: &Value) -> String {
    match types(items).as_slice() {
        ["string"] => "strings".to_owned(),
        ["integer"] => "whole numbers".to_owned(),
        ["object"] => "objects".to_owned(),
        _ => "items".to_owned(),
    }
}

/// Examples of valid values: those of the schema, or a generated one.
fn examples(schema: &Value) -> Vec<String> {
    let shown = |it: &Value| it.to_string();
    if let Some(given) = schema.get("examples").and_then(Value::as_array) {
        return given.iter().map(shown).collect();
    }
    if let Some(items) = schema.get("items").filter(|_| types(schema).contains(&"array")) {
        let first = items.get("examples").and_then(|it| it.get(0)).cloned();
        let made_up = || (types(items) == ["string"]).then(|| json!("text"));
        return first.or_else(made_up).map(|it| json!([it]).to_string()).into_iter().collect();
    }
    if schema.get("enum").is_some() {
        return Vec::new();
    }
    match types(schema).as_slice() {
        ["object"] => vec![sample(schema).to_string()],
        ["integer" | "number"] => vec!["1".to_owned()],
        ["string"] => vec!["\"text\"".to_owned()],
        _ => Vec::new(),
    }
}

/// An object with all required fields.
fn sample(schema: &Value) -> Value {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(fields) = schema.get("properties").and_then(Value::as_object) else { return json!({ "NAME": "value" }) };
    let value = |schema: &Value| match types(schema).first() {
        Some(&"integer" | &"number") => json!(1),
        Some(&"boolean") => json!(true),
        Some(&"array") => json!([]),
        Some(&"object") => json!({}),
        _ => json!("text"),
    };
    required
        .iter()
        .filter_map(|it| Some(((*it).to_owned(), value(fields.get(*it)?))))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
