//! Publishes the table of operations as one tool with a JSON Schema.
//!
//! Several APIs refuse `oneOf`, `anyOf` and `allOf` at the root of a tool's schema, and some refuse `$ref`. So the
//! schema is one object with the fields of all operations. Each description names the operations that have the field,
//! and a call with a field of another operation is refused.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::OperationEntry;
use crate::schema::publish;

/// The tool as models see it: `{name, description, input_schema}`.
#[must_use]
pub fn tool(table: &[OperationEntry]) -> Value {
    let lines: Vec<String> = table.iter().map(|it| format!("- {}: {}", it.name, it.arguments().description)).collect();
    let description = format!(
        "Linux containers: each is a machine of its own, made, used and removed by calls.\nOperations:\n{}",
        lines.join("\n")
    );
    json!({ "name": "containers", "description": description, "input_schema": input_schema(table) })
}

/// The flat object schema: `operation`, and the fields of all operations.
#[must_use]
pub fn input_schema(table: &[OperationEntry]) -> Value {
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
        // A model fills in the default that it sees. If operations have different ones, the description has them
        // instead.
        let default = |it: &OperationEntry| it.arguments().properties[&field].get("default").cloned();
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

/// Maps each field to the operations that have it.
fn users(table: &[OperationEntry]) -> BTreeMap<String, Vec<OperationEntry>> {
    let mut users: BTreeMap<String, Vec<OperationEntry>> = BTreeMap::new();
    for entry in table {
        for field in entry.arguments().properties.keys() {
            users.entry(field.clone()).or_default().push(*entry);
        }
    }
    users
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::{input_schema, publish, tool};
    use crate::operations;
    use crate::schema::IS_NAME;

    fn without_users(schema: &Value) -> Value {
        let mut schema = schema.clone();
        let described = schema["description"].as_str().unwrap_or_default().to_owned();
        schema["description"] = described.rsplit_once('[').map_or(described.as_str(), |(own, _)| own).trim().into();
        schema
    }

    #[test]
    fn a_parameter_means_the_same_in_every_operation() {
        let merged = input_schema(operations::ALL);
        for entry in operations::ALL {
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
    fn different_defaults_are_in_the_description() {
        let merged = input_schema(operations::ALL);
        let timeout = &merged["properties"]["timeout"];
        assert_eq!(timeout.get("default"), None);
        let described = timeout["description"].as_str().unwrap();
        assert!(
            described.contains("[exec (default 300), exec_background (default 0), job_wait (default 60), "),
            "{described}"
        );
        assert_eq!(merged["properties"]["silence_timeout"]["default"], 0);
    }

    #[test]
    fn the_schema_is_one_flat_object() {
        let schema = input_schema(operations::ALL);
        assert_eq!((&schema["type"], &schema["required"]), (&json!("object"), &json!(["operation"])));
        assert_eq!(schema["additionalProperties"], false);
        let text = schema.to_string();
        for word in ["oneOf", "anyOf", "allOf", "$ref", "$defs", IS_NAME] {
            assert!(!text.contains(word), "{word}");
        }
    }

    #[test]
    fn every_field_and_operation_is_described() {
        let described = tool(operations::ALL);
        for (name, schema) in described["input_schema"]["properties"].as_object().unwrap_or(&Map::new()) {
            assert!(schema["description"].as_str().is_some_and(|it| !it.starts_with('[')), "{name}");
            assert!(schema.get("type").is_some(), "`{name}` has no type");
        }
        for entry in operations::ALL {
            assert!(!entry.arguments().description.is_empty(), "{}", entry.name);
        }
    }
}
