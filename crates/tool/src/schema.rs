//! The one flat schema that is published, and the fields of each operation.
//!
//! Model APIs refuse `oneOf`, `anyOf` and `allOf` at the root of a tool's schema, and some refuse `$ref`. So one object
//! is published with the fields of all operations; which belong together is said in words and decided at dispatch.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

pub(crate) use coracle_workspace::schema::of;
use coracle_workspace::schema::tidied;
use schemars::JsonSchema;
use serde_json::{Map, Value, json};

use crate::op::Entry;

/// Marks a text that is a name, so that a wrong one is `invalid_name`. Not published.
pub(crate) const IS_NAME: &str = "x-name";

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
    /// Whether a value says no more than leaving the field out.
    pub(crate) fn is_default(&self, name: &str, value: &Value) -> bool {
        let declared = self.properties.get(name).and_then(|it| it.get("default"));
        let empty = match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        let same_number = || Some(declared?.as_f64()? == value.as_f64()?);
        empty || declared == Some(value) || same_number().unwrap_or(false)
    }

    pub(crate) fn is_name(&self, field: &str) -> bool {
        self.properties.get(field).is_some_and(|it| it.get(IS_NAME).is_some())
    }
}

/// What was derived already: a call asks several times, and deriving is most of what a short one would do.
static DERIVED: Mutex<BTreeMap<TypeId, Arguments>> = Mutex::new(BTreeMap::new());

/// Derives them from the type.
pub(crate) fn arguments<T: JsonSchema + 'static>() -> Arguments {
    let known = |derived: &BTreeMap<TypeId, Arguments>| derived.get(&TypeId::of::<T>()).cloned();
    if let Some(known) = known(&DERIVED.lock().unwrap_or_else(PoisonError::into_inner)) {
        return known;
    }
    let arguments = derive::<T>();
    DERIVED.lock().unwrap_or_else(PoisonError::into_inner).insert(TypeId::of::<T>(), arguments.clone());
    arguments
}

/// The input of one tool of its own: a flat object.
pub(crate) fn alone(arguments: &Arguments) -> Map<String, Value> {
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

/// What the tool looks like to a model: `{name, description, input_schema}`.
#[must_use]
pub fn tool(table: &[Entry]) -> Value {
    let lines: Vec<String> = table.iter().map(|it| format!("- {}: {}", it.name, it.arguments().description)).collect();
    let description = format!(
        "Linux containers: each is a machine of its own, made, used and removed by calls.\nOperations:\n{}",
        lines.join("\n")
    );
    json!({ "name": "containers", "description": description, "input_schema": input_schema(table) })
}

/// The flat object schema: `operation`, and the fields of all operations.
#[must_use]
pub fn input_schema(table: &[Entry]) -> Value {
    let mut properties = Map::new();
    let names: Vec<&str> = table.iter().map(|it| it.name).collect();
    properties.insert(
        "operation".into(),
        json!({ "type": "string", "enum": names, "description": "What to do. Fields of other operations are left out." }),
    );
    for (field, users) in users(table) {
        let Some(mut schema) = users.first().and_then(|it| it.arguments().properties.get(&field).cloned()) else {
            continue;
        };
        publish(&mut schema);
        // A model fills in the default that it sees, so one that does not hold for all stands behind its operation.
        let default = |it: &Entry| it.arguments().properties[&field].get("default").cloned();
        let differ = users.iter().any(|it| default(it) != default(&users[0]));
        if let Some(fields) = schema.as_object_mut().filter(|_| differ) {
            fields.remove("default");
        }
        let users: Vec<String> = users
            .iter()
            .map(|it| match default(it) {
                _ if it.arguments().required.contains(&field) => format!("{} (required)", it.name),
                Some(default) if differ => format!("{} (default {default})", it.name),
                _ => it.name.into(),
            })
            .collect();
        let own = schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        schema["description"] = format!("{own} [{}]", users.join(", ")).trim_start().into();
        properties.insert(field, schema);
    }
    json!({ "type": "object", "properties": properties, "required": ["operation"], "additionalProperties": false })
}

/// Each field with the operations that have it.
fn users(table: &[Entry]) -> BTreeMap<String, Vec<Entry>> {
    let mut users: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for entry in table {
        for field in entry.arguments().properties.keys() {
            users.entry(field.clone()).or_default().push(*entry);
        }
    }
    users
}

/// Takes out what is ours.
fn publish(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, _| name != IS_NAME);
            fields.values_mut().for_each(publish);
        }
        Value::Array(items) => items.iter_mut().for_each(publish),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{IS_NAME, input_schema, publish, tool};
    use crate::ops;

    fn without_users(schema: &Value) -> Value {
        let mut schema = schema.clone();
        let told = schema["description"].as_str().unwrap_or_default().to_owned();
        schema["description"] = told.rsplit_once('[').map_or(told.as_str(), |(own, _)| own).trim().into();
        schema
    }

    #[test]
    fn a_parameter_means_the_same_in_every_operation() {
        let merged = input_schema(ops::ALL);
        for entry in ops::ALL {
            for (name, mut own) in entry.arguments().properties {
                publish(&mut own);
                if merged["properties"][&name].get("default").is_none() {
                    own.as_object_mut().unwrap().remove("default");
                }
                assert_eq!(without_users(&merged["properties"][&name]), own, "`{name}` in `{}`", entry.name);
            }
        }
    }

    #[test]
    fn a_default_that_holds_for_some_operations_only_is_told_with_them() {
        let merged = input_schema(ops::ALL);
        let timeout = &merged["properties"]["timeout"];
        assert_eq!(timeout.get("default"), None);
        let told = timeout["description"].as_str().unwrap();
        assert!(told.ends_with("[exec (default 300), exec_background (default 0), job_wait (default 60)]"), "{told}");
        assert_eq!(merged["properties"]["silence_timeout"]["default"], 0);
    }

    #[test]
    fn the_schema_is_one_flat_object() {
        let schema = input_schema(ops::ALL);
        assert_eq!((&schema["type"], &schema["required"]), (&json!("object"), &json!(["operation"])));
        assert_eq!(schema["additionalProperties"], false);
        let text = schema.to_string();
        for word in ["oneOf", "anyOf", "allOf", "$ref", "$defs", IS_NAME] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn every_field_and_operation_is_described() {
        let told = tool(ops::ALL);
        for (name, schema) in told["input_schema"]["properties"].as_object().unwrap_or(&Map::new()) {
            assert!(schema["description"].as_str().is_some_and(|it| !it.starts_with('[')), "{name}");
            assert!(schema.get("type").is_some(), "`{name}` has no type");
        }
        for entry in ops::ALL {
            assert!(!entry.arguments().description.is_empty(), "{}", entry.name);
        }
    }

    mod tidied {
        use schemars::JsonSchema;
        use serde::Deserialize;
        use serde_json::json;

        use crate::schema::arguments;

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
}
