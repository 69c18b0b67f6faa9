//! The tool with which a model submits its result.

use coracle_sandbox::schema::Schema;
use serde_json::{Map, Value, json};

use crate::tools::function;

/// The name of the tool with which a model submits its result.
pub(super) const SUBMIT: &str = "submit_result";

/// Empty text is an empty object.
pub(super) fn arguments(text: &str) -> Option<Map<String, Value>> {
    if text.trim().is_empty() {
        return Some(Map::new());
    }
    serde_json::from_str(text).ok()
}

/// The tool with which a model submits its result. A result that is not an object is wrapped in one, because tool
/// arguments are an object.
pub(super) fn submit(schema: &Schema) -> Value {
    let mut tool = function(SUBMIT, &json!({ "description": "Give the final result. It ends the task." }));
    tool["function"]["parameters"] = if is_object(schema) {
        schema.value().clone()
    } else {
        json!({ "type": "object", "properties": { "result": schema.value() }, "required": ["result"] })
    };
    tool
}

pub(super) fn unwrapped(schema: &Schema, mut arguments: Map<String, Value>) -> Value {
    if is_object(schema) { arguments.into() } else { arguments.remove("result").unwrap_or_default() }
}

pub(super) fn is_object(schema: &Schema) -> bool {
    schema.value().get("type").is_none_or(|it| it == "object")
}
