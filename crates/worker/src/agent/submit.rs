//! The tool by which a result of a shape is given.

use coracle_sandbox::schema::Schema;
use serde_json::{Map, Value, json};

use crate::tools::function;

/// The tool by which a result of a shape is given.
pub(super) const SUBMIT: &str = "submit_result";

/// No arguments are an empty object.
pub(super) fn arguments(text: &str) -> Option<Map<String, Value>> {
    if text.trim().is_empty() {
        return Some(Map::new());
    }
    serde_json::from_str(text).ok()
}

/// The tool by which a result is given. What is no object is put into one, since arguments are.
pub(super) fn submit(schema: &Schema) -> Value {
    let mut told = function(SUBMIT, &json!({ "description": "Give the final result. It ends the task." }));
    told["function"]["parameters"] = if is_object(schema) {
        schema.value().clone()
    } else {
        json!({ "type": "object", "properties": { "result": schema.value() }, "required": ["result"] })
    };
    told
}

pub(super) fn unwrapped(schema: &Schema, mut arguments: Map<String, Value>) -> Value {
    if is_object(schema) { arguments.into() } else { arguments.remove("result").unwrap_or_default() }
}

pub(super) fn is_object(schema: &Schema) -> bool {
    schema.value().get("type").is_none_or(|it| it == "object")
}
