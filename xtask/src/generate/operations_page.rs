//! The reference of operations and session tools: fields, types, limits and defaults, and the fields of answers.

use serde_json::Value;

use super::document::{Callable, ClientDocument, SchemaField, SchemaType, fields, types_of};

const HEAD: &str = "\
<!-- Written by `cargo xtask generate` from clients/openapi.json. -->

# Operations

This page lists every operation and session tool with its fields, as [`coracle call --schema`](../calls.md) describes them. The
defaults are those of a program without a configuration. At the command line each operation is a
[subcommand](../command-line.md) with `-` in place of `_`, and each field an option.

Sizes and durations are numbers, or texts such as `512m` and `90s`. A failed answer has an [error code](errors.md).
";

const TOOLS: &str = "
# Session tools

Each is a tool of the [MCP server](../mcp.md#toolsets), a call of [`coracle serve`](../clients.md#the-protocol), and for people a command of
[`coracle workspace`](../workspace.md).
";

/// The text of the page.
pub(super) fn page(document: &ClientDocument) -> String {
    let mut page = HEAD.to_owned();
    let operations = document.callables.iter().filter(|it| !it.is_tool);
    operations.for_each(|it| page += &section(it));
    page += TOOLS;
    let tools = document.callables.iter().filter(|it| it.is_tool);
    tools.for_each(|it| page += &section(it));
    page
}

fn section(callable: &Callable) -> String {
    let mut text = format!("\n## `{}`\n\n{}\n", callable.name, cell(&callable.description));
    if !callable.fields.is_empty() {
        text += "\n| field | type | default | meaning |\n|---|---|---|---|\n";
        callable.fields.iter().for_each(|it| text += &field_row(it));
    }
    let mut answer = fields(&callable.result);
    answer.retain(|it| it.name != "success");
    answer.sort_by(|a, b| a.name.cmp(&b.name));
    let names: Vec<String> = answer.iter().map(|it| format!("`{}` ({})", it.name, type_words(&it.schema))).collect();
    if !names.is_empty() {
        text += &format!("\nThe answer has {}.\n", names.join(", "));
    }
    text
}

fn field_row(field: &SchemaField) -> String {
    let default = match (&field.schema["default"], field.is_required) {
        (_, true) => "required".to_owned(),
        (Value::Null, _) => String::new(),
        (value, _) => format!("`{value}`"),
    };
    let kind = type_words(&field.schema);
    let kind = match limits(&field.schema) {
        Some(limits) => format!("{kind}, {limits}"),
        None => kind,
    };
    format!("| `{}` | {kind} | {} | {} |\n", field.name, cell(&default), cell(&field.description))
}

fn limits(schema: &Value) -> Option<String> {
    let number = |key: &str| schema.get(key).filter(|it| it.is_number()).map(Value::to_string);
    let range = match (number("minimum").filter(|it| it != "0"), number("maximum")) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}")),
        (Some(least), None) => Some(format!("at least {least}")),
        (None, Some(most)) => Some(format!("at most {most}")),
        (None, None) => None,
    };
    let items = number("maxItems").map(|it| format!("at most {it} items"));
    range.or(items)
}

fn type_words(schema: &Value) -> String {
    let mut words: Vec<String> = Vec::new();
    for kind in types_of(schema) {
        let word = match kind {
            SchemaType::Choice(choices) => choices.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", "),
            SchemaType::Text => "text".to_owned(),
            SchemaType::Integer => "integer".to_owned(),
            SchemaType::Number => "number".to_owned(),
            SchemaType::Boolean => "true or false".to_owned(),
            SchemaType::Null => "null".to_owned(),
            SchemaType::List(items) if items.is_object() => format!("list of {}", type_words(items)),
            SchemaType::List(_) => "list".to_owned(),
            SchemaType::Object => "object".to_owned(),
            SchemaType::Any => "any".to_owned(),
        };
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.join(" or ")
}

/// A text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Callable, SchemaField, section};

    #[test]
    fn a_section_has_fields_with_types_limits_and_defaults() {
        let field = |name: &str, schema: serde_json::Value, is_required| SchemaField {
            name: name.to_owned(),
            description: "It | is.".to_owned(),
            schema,
            is_required,
        };
        let callable = Callable {
            name: "wait".to_owned(),
            description: "Wait.".to_owned(),
            is_tool: false,
            fields: vec![
                field("container", json!({ "type": "string" }), true),
                field("port", json!({ "type": "integer", "minimum": 1, "maximum": 65535 }), false),
                field("mode", json!({ "type": "string", "enum": ["a", "b"], "default": "a" }), false),
                field("words", json!({ "type": ["string", "array"], "items": { "type": "string" } }), false),
            ],
            result: json!({ "properties": { "success": { "type": "boolean" }, "code": { "type": ["integer", "null"] } } }),
        };
        assert_eq!(
            section(&callable),
            "\n## `wait`\n\nWait.\n\n| field | type | default | meaning |\n|---|---|---|---|\n\
             | `container` | text | required | It \\| is. |\n\
             | `port` | integer, 1 to 65535 |  | It \\| is. |\n\
             | `mode` | `a`, `b` | `\"a\"` | It \\| is. |\n\
             | `words` | text or list of text |  | It \\| is. |\n\
             \nThe answer has `code` (integer or null).\n"
        );
    }
}
