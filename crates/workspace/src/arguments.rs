//! The fields of operations and tools, derived from their types.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::schema::tidied;
pub use crate::schema::{json_schema, result_schema};

/// Marks a text that is a name, so that a wrong one is `invalid_name`. Not published.
pub const IS_NAME: &str = "x-name";

/// Marks a field that the command line takes as an option, whatever its name. Not published.
pub const IS_OPTION: &str = "x-option";

/// Marks a field that is the first word at the command line, though it may be left out.
pub const IS_FIRST: &str = "x-first";

/// The fields of one operation.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// What the operation does.
    pub description: String,
    /// Name and schema of each field, in the order of declaration when that is known.
    pub properties: Map<String, Value>,
    /// Names of those that have to be there.
    pub required: Vec<String>,
}

impl Arguments {
    /// Whether a value means the same as leaving the field out.
    #[must_use]
    pub fn is_default(&self, name: &str, value: &Value) -> bool {
        let declared = self.properties.get(name).and_then(|it| it.get("default"));
        let empty = match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        let same_number = || Some(declared?.as_f64()? == value.as_f64()?);
        empty || declared == Some(value) || same_number().unwrap_or(false)
    }

    /// Whether the field is an option at the command line, whatever its name.
    #[must_use]
    pub fn is_option(&self, field: &str) -> bool {
        self.properties.get(field).is_some_and(|it| it.get(IS_OPTION).is_some())
    }

    /// Whether the field is the first word at the command line, though it may be left out.
    #[must_use]
    pub fn is_first(&self, field: &str) -> bool {
        self.properties.get(field).is_some_and(|it| it.get(IS_FIRST).is_some())
    }

    /// Whether the field is a name.
    #[must_use]
    pub fn is_name(&self, field: &str) -> bool {
        self.properties.get(field).is_some_and(|it| it.get(IS_NAME).is_some())
    }
}

/// What was derived already: a call asks several times, and deriving is most of what a short one would do.
static DERIVED: Mutex<BTreeMap<TypeId, Arguments>> = Mutex::new(BTreeMap::new());

/// Derives them from the type.
#[must_use]
pub fn arguments<T: JsonSchema + 'static>() -> Arguments {
    let known = |derived: &BTreeMap<TypeId, Arguments>| derived.get(&TypeId::of::<T>()).cloned();
    if let Some(known) = known(&DERIVED.lock().unwrap_or_else(PoisonError::into_inner)) {
        return known;
    }
    let arguments = derive::<T>();
    DERIVED.lock().unwrap_or_else(PoisonError::into_inner).insert(TypeId::of::<T>(), arguments.clone());
    arguments
}

/// The input of one tool of its own: a flat object.
#[must_use]
pub fn alone(arguments: &Arguments) -> Map<String, Value> {
    let mut properties = Value::Object(arguments.properties.clone());
    publish(&mut properties);
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": arguments.required,
        "additionalProperties": false,
    });
    schema.as_object().cloned().unwrap_or_default()
}

fn derive<T: JsonSchema>() -> Arguments {
    let schema = tidied::<T>();
    let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default().replace('\n', " ");
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    Arguments {
        description: text("description"),
        properties: schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default(),
        required: required.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect(),
    }
}

/// Removes Coracle's own keywords.
pub fn publish(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, _| ![IS_NAME, IS_OPTION, IS_FIRST].contains(&name.as_str()));
            fields.values_mut().for_each(publish);
        }
        Value::Array(items) => items.iter_mut().for_each(publish),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    use super::arguments;

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Odd {
        /// Which way.
        way: Option<Way>,
        count: Option<u32>,
        nested: Vec<Inner>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    enum Way {
        /// Inward.
        In,
        /// Outward.
        Out,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Inner {
        way: Option<Way>,
    }

    #[test]
    fn optional_and_documented_choices_become_plain() {
        let found = arguments::<Odd>().properties;
        let way = json!({ "type": "string", "enum": ["in", "out"], "description": "Which way. `in`: Inward. `out`: Outward." });
        assert_eq!(found["way"], way);
        assert_eq!(found["count"], json!({ "type": "integer", "minimum": 0 }));
        assert_eq!(found["nested"]["items"]["properties"]["way"]["enum"], json!(["in", "out"]));
    }
}
