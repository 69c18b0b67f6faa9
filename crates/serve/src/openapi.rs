//! The OpenAPI document, derived from the types of operations and tools.

use coracle::{ERROR_CLASSES, OperationEntry, schema, step_schema};
use coracle_context::config::Config;
use coracle_prepare::Process;
use serde_json::{Map, Value, json};

use crate::catalog::Catalog;

/// Describes `POST /call` and `POST /tools/{name}`. Clients are generated from it.
#[must_use]
pub fn document(process: &Process) -> Value {
    let (operations, catalog) = (Catalog::operations(), Catalog::for_process(process));
    let mut schemas = Map::from_iter([("Failure".to_owned(), failure()), ("Event".to_owned(), event())]);
    let mut paths = Map::from_iter([("/call".to_owned(), call_path(operations))]);
    for entry in operations {
        schemas.insert(request_name(entry), request(entry, true));
        schemas.insert(result_name(entry), result(entry));
    }
    for entry in catalog.tools() {
        schemas.insert(request_name(entry), request(entry, false));
        schemas.insert(result_name(entry), entry.output());
        paths.insert(format!("/tools/{}", entry.name), tool_path(entry));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Coracle",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Linux machines in containers. Every answer has `success`; with false it is a Failure. \
                            With `Accept: text/event-stream` events come before the answer, which is the event `result`.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas,
        },
        "x-configuration": Config::keys(),
    })
}

/// `copy_in` is `CopyIn`.
fn pascal(name: &str) -> String {
    let capital =
        |it: &str| it.chars().take(1).flat_map(char::to_uppercase).chain(it.chars().skip(1)).collect::<String>();
    name.split('_').map(capital).collect()
}

fn request_name(entry: &OperationEntry) -> String {
    format!("{}Request", pascal(entry.name))
}

fn result_name(entry: &OperationEntry) -> String {
    format!("{}Result", pascal(entry.name))
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn request(entry: &OperationEntry, is_operation: bool) -> Value {
    let arguments = entry.arguments();
    let mut schema = schema::alone(&arguments);
    schema.insert("description".into(), arguments.description.clone().into());
    if is_operation {
        let word = json!({ "const": entry.name });
        schema.entry("properties").or_insert_with(|| json!({}))["operation"] = word;
        let required = arguments.required.into_iter().chain(["operation".to_owned()]);
        schema.insert("required".into(), required.collect::<Vec<_>>().into());
    }
    Value::Object(schema)
}

/// The fields of a response, and `success`.
fn result(entry: &OperationEntry) -> Value {
    let mut schema = entry.result();
    schema["properties"]["success"] = json!({ "type": "boolean" });
    if let Some(required) = schema.as_object_mut().map(|it| it.entry("required").or_insert_with(|| json!([])))
        && let Some(required) = required.as_array_mut()
    {
        required.push("success".into());
    }
    schema
}

fn failure() -> Value {
    let text = json!({ "type": "string" });
    let classes: Vec<Value> = ERROR_CLASSES
        .iter()
        .map(|class| json!({ "name": class.name, "description": class.about, "codes": class.codes }))
        .collect();
    json!({
        "type": "object",
        "description": "A call that did not do what was requested. `x-classes` groups the codes.",
        "properties": {
            "success": { "const": false },
            "operation": { "type": ["string", "null"] },
            "code": text,
            "error": text,
            "message": text,
            "hint": { "type": ["string", "null"] },
            "retryable": { "type": "boolean" },
            "details": { "type": "object" },
        },
        "required": ["success", "code", "error"],
        "x-classes": classes,
    })
}

fn event() -> Value {
    json!({
        "description": "Something that happened during a call. Its name is that of the server-sent event.",
        "oneOf": [output_event(), progress_event(), step_event()],
    })
}

fn output_event() -> Value {
    json!({
        "type": "object",
        "description": "Output of a command: in `data`, or in `base64` if it is not text by itself.",
        "properties": {
            "event": { "enum": ["stdout", "stderr"] },
            "data": { "type": "string" },
            "base64": { "type": "string" },
            "offset": { "type": "integer", "minimum": 0, "description": "Bytes of the stream before it." },
        },
        "required": ["event", "offset"],
    })
}

fn progress_event() -> Value {
    json!({
        "type": "object",
        "description": "What the call does now, and how much of it is done.",
        "properties": {
            "event": { "const": "progress" },
            "message": { "type": "string" },
            "done": { "type": "integer", "minimum": 0 },
            "total": { "type": ["integer", "null"], "minimum": 0 },
        },
        "required": ["event", "message"],
    })
}

fn step_event() -> Value {
    json!({
        "type": "object",
        "description": "A step of `create` has ended.",
        "properties": { "event": { "const": "step" }, "step": step_schema() },
        "required": ["event", "step"],
    })
}

fn post(id: &str, description: &str, request: &Value, result: &Value) -> Value {
    json!({ "post": {
        "operationId": id,
        "description": description,
        "requestBody": { "required": true, "content": { "application/json": { "schema": request } } },
        "responses": {
            "200": {
                "description": "The answer, or the failure.",
                "content": {
                    "application/json": { "schema": { "anyOf": [result, reference("Failure")] } },
                    "text/event-stream": { "schema": reference("Event") },
                },
            },
            "default": {
                "description": "The request is rejected: an invalid call with a failure, any other request with a text.",
                "content": {
                    "application/json": { "schema": reference("Failure") },
                    "text/plain": { "schema": { "type": "string" } },
                },
            },
        },
    } })
}

fn call_path(operations: &[OperationEntry]) -> Value {
    let requests: Vec<Value> = operations.iter().map(|it| reference(&request_name(it))).collect();
    let results: Vec<Value> = operations.iter().map(|it| reference(&result_name(it))).collect();
    let mapping: Map<String, Value> = operations
        .iter()
        .map(|it| (it.name.to_owned(), format!("#/components/schemas/{}", request_name(it)).into()))
        .collect();
    let request = json!({ "oneOf": requests, "discriminator": { "propertyName": "operation", "mapping": mapping } });
    post("call", "Carries out an operation.", &request, &json!({ "anyOf": results }))
}

fn tool_path(entry: &OperationEntry) -> Value {
    let description = entry.arguments().description;
    post(entry.name, &description, &reference(&request_name(entry)), &reference(&result_name(entry)))
}
