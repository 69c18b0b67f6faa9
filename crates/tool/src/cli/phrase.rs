//! A failure in the words of the command line: `--overwrite` where a call says `overwrite`.

use serde_json::{Map, Value};

use super::command::{runs, usage, word, words};
use crate::op::Entry;
use crate::ops;
use crate::schema::Arguments;

/// The same answer for a person's eyes.
pub(super) fn for_people(entry: &Entry, answer: &Map<String, Value>) -> Map<String, Value> {
    let arguments = entry.arguments();
    let mut told = answer.clone();
    let code = text(answer, "code");
    let about_fields = ["invalid_input", "invalid_name", "unknown_field", "missing_field", "confirm_required"];
    if about_fields.contains(&code) {
        told.insert("message".into(), spoken(text(answer, "message"), &arguments, false).into());
    }
    let hint = match code {
        "missing_field" => {
            // The message names them all.
            told.insert("details".into(), Value::Null);
            format!(
                "usage: {}",
                usage(&format!("coracle {}", super::command::word(entry.name)), &arguments).replace("       ", "or: ")
            )
        }
        "cancelled" => cancelled(entry, answer),
        _ if text(answer, "hint").contains("`details.problems`") => {
            format!("`coracle {} --help` says what each option takes", word(entry.name))
        }
        _ => spoken(text(answer, "hint"), &arguments, true),
    };
    told.insert("hint".into(), hint.into());
    told
}

/// What a person who pressed Ctrl-C wants to know.
fn cancelled(entry: &Entry, answer: &Map<String, Value>) -> String {
    let details = answer.get("details").unwrap_or(&Value::Null);
    match details["tree_ended"].as_bool() {
        Some(true) => "nothing of the command is left running".to_owned(),
        Some(false) => "some of the command's processes may still run".to_owned(),
        None if entry.name == "create" && details["left"].is_null() => "what was made is removed again".to_owned(),
        None => String::new(),
    }
}

/// Replaces what stands in backquotes: fields by options, and operations by what a person types.
fn spoken(text: &str, arguments: &Arguments, operations: bool) -> String {
    let mut parts: Vec<String> = text.split('`').map(str::to_owned).collect();
    let last = parts.len().saturating_sub(1);
    for part in parts.iter_mut().take(last).skip(1).step_by(2) {
        if let Some(new) = option(part, arguments) {
            *part = new;
        } else if operations && ops::ALL.iter().any(|it| it.name == part.as_str()) {
            *part = format!("coracle {}", word(part));
        }
    }
    parts.join("`")
}

/// `name`, or `name: value`.
fn option(span: &str, arguments: &Arguments) -> Option<String> {
    let (name, value) = span.split_once(": ").map_or((span, None), |(name, value)| (name, Some(value)));
    let positional = words(arguments).any(|it| it == name) || (runs(arguments) && name == "command");
    if !arguments.properties.contains_key(name) {
        return None;
    }
    Some(match value {
        None if positional => format!("<{}>", name.to_uppercase()),
        None | Some("true") => format!("--{}", word(name)),
        Some(value) => format!("--{}={}", word(name), value.trim_matches('"')),
    })
}

fn text<'a>(answer: &'a Map<String, Value>, key: &str) -> &'a str {
    answer.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;
    use serde_json::{Value, json};

    use crate::ops;

    fn check(operation: &str, code: &str, message: &str, hint: &str, details: &Value) -> String {
        let entry = ops::ALL.iter().find(|it| it.name == operation).unwrap();
        let answer = json!({ "code": code, "message": message, "hint": hint, "details": details.clone() });
        let told = super::for_people(entry, answer.as_object().unwrap());
        format!("{} | {}", told["message"].as_str().unwrap(), told["hint"].as_str().unwrap())
    }

    #[test]
    fn hints_are_commands_and_options() {
        let told = |operation, code, message, hint| check(operation, code, message, hint, &json!({}));
        assert_snapshot!(told("copy_out", "path_exists", "`/x` exists", "leave `overwrite` out"), @"`/x` exists | leave `--overwrite` out");
        assert_snapshot!(told("destroy_all", "confirm_required", "`confirm` must be true", "call again with `confirm: true`"), @"`--confirm` must be true | call again with `--confirm`");
        assert_snapshot!(told("exec", "not_found", "no container `list`", "`list` shows them; `destroy_all` ends them"), @"no container `list` | `coracle list` shows them; `coracle destroy-all` ends them");
        assert_snapshot!(told("create", "invalid_input", "`env`: bad", "correct `env`; `details.problems` has everything"), @"`--env`: bad | `coracle create --help` says what each option takes");
    }

    #[test]
    fn what_is_missing_is_told_with_the_usage() {
        assert_snapshot!(check("exec", "missing_field", "required: `container`, `command`", "x", &json!({})), @r"
        required: `<CONTAINER>`, `<COMMAND>` | usage: coracle exec [OPTIONS] <CONTAINER> -- <WORDS>...
        or: coracle exec [OPTIONS] <CONTAINER> <COMMAND>
        ");
    }

    #[test]
    fn an_interrupt_says_what_is_left() {
        let told = |operation, details: Value| check(operation, "cancelled", "cancelled", "", &details);
        assert_snapshot!(told("exec", json!({ "tree_ended": true })), @"cancelled | nothing of the command is left running");
        assert_snapshot!(told("create", json!({})), @"cancelled | what was made is removed again");
        assert_snapshot!(told("list", json!({})), @"cancelled |");
    }
}
