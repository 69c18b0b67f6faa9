//! The shape that a result has to have.

mod error;
#[cfg(not(feature = "schemas"))]
mod no_validator;
#[cfg(feature = "schemas")]
mod validator;

use serde_json::Value;

use self::error::{invalid, short};
#[cfg(not(feature = "schemas"))]
use self::no_validator::Validator;
#[cfg(feature = "schemas")]
use self::validator::Validator;
use crate::Result;

/// A JSON Schema of draft 2020-12 that refers to nothing outside.
#[derive(Debug)]
pub struct Schema {
    value: Value,
    validator: Validator,
}

impl Schema {
    /// Reads a schema. Nothing is fetched for it.
    ///
    /// # Errors
    /// `schema_invalid`: it is none, or refers to what is elsewhere. `schema_unsupported` without the feature `schemas`.
    pub fn new(value: Value) -> Result<Self> {
        if !value.is_object() {
            return Err(invalid("it is no JSON object"));
        }
        if let Some(reference) = elsewhere(&value) {
            return Err(invalid(&format!("`$ref` leads outside: {}", short(reference))));
        }
        let validator = Validator::new(&value)?;
        Ok(Self { value, validator })
    }

    /// The schema.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Reads a text as JSON and holds it against the schema.
    ///
    /// # Errors
    /// What is wrong with it, each in a sentence.
    pub fn read(&self, text: &str) -> Result<Value, Vec<String>> {
        let value = serde_json::from_str(text).map_err(|err| vec![format!("it is no JSON: {err}")])?;
        self.check(&value).map(|()| value)
    }

    /// Holds a value against the schema.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn check(&self, value: &Value) -> Result<(), Vec<String>> {
        let faults = self.validator.faults(value);
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// A reference that does not begin in the schema itself.
fn elsewhere(value: &Value) -> Option<&str> {
    match value {
        Value::Object(fields) => {
            let own = ["$ref", "$dynamicRef"].iter().filter_map(|it| fields.get(*it)?.as_str());
            own.into_iter().find(|it| !it.starts_with('#')).or_else(|| fields.values().find_map(elsewhere))
        }
        Value::Array(items) => items.iter().find_map(elsewhere),
        _ => None,
    }
}

#[cfg(all(test, feature = "schemas"))]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Code;

    #[test]
    fn x46_what_is_no_schema_or_leads_elsewhere_is_refused() {
        for (value, expected) in [
            (json!([1]), "it is no JSON object"),
            (json!({ "type": "nonsense" }), "The schema is invalid: "),
            (
                json!({ "properties": { "a": { "$ref": "https://example.org/s.json" } } }),
                "leads outside: https://example",
            ),
            (json!({ "$ref": "file:///etc/passwd" }), "leads outside: file:"),
            (json!({ "$ref": "#/$defs/missing" }), "The schema is invalid: "),
        ] {
            let failure = Schema::new(value).unwrap_err();
            assert_eq!(failure.code, Code::SchemaInvalid);
            assert!(failure.message.contains(expected), "{}", failure.message);
        }
    }

    #[test]
    fn a_value_is_checked_against_the_schema_and_every_error_is_reported() {
        let schema = json!({ "type": "object", "properties": { "n": { "$ref": "#/$defs/n" } }, "required": ["n", "m"],
            "$defs": { "n": { "type": "integer" } } });
        let schema = Schema::new(schema).unwrap();
        assert_eq!(schema.read(r#"{"n": 1, "m": null}"#).unwrap(), json!({ "n": 1, "m": null }));
        assert_eq!(schema.read(r#"{"n": "x"}"#).unwrap_err().len(), 2);
        assert!(schema.read("not JSON").unwrap_err()[0].starts_with("it is no JSON"));
    }
}
