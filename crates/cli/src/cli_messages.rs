//! Failures with the names of the command line: `--overwrite` instead of `overwrite`, `coracle list` instead of `list`.
//! All failures for users pass through here.

use std::path::PathBuf;
use std::sync::OnceLock;

use coracle::schema::Arguments;
use coracle::{OperationEntry, admin, operations, tools, worktree};
use coracle_context::Failure;
use coracle_context::config::Toolset;
use coracle_context::failure::HintReader;
use coracle_workspace::RunCode;
use serde_json::{Map, Value};

use super::operation_args::{operation_word, runs, usage, word, words};
use crate::render;

/// The configuration file in use. Each process has one.
static SETTINGS: OnceLock<PathBuf> = OnceLock::new();

/// Sets the file that hints name.
pub(super) fn settings_are_in(file: PathBuf) {
    // Only `main` sets it.
    let _ = SETTINGS.set(file);
}

/// Prints a failure outside of an operation.
pub(super) fn complain(failure: &Failure) {
    let mut answer = to_person(failure.clone()).answer(None);
    let hint = with_cli_names(text(&answer, "hint"), None);
    answer.insert("hint".into(), hint.into());
    render::complain(&answer);
}

/// Rewrites a failure for users.
pub(super) fn to_person(failure: Failure) -> Failure {
    let settings = SETTINGS.get().cloned().unwrap_or_else(|| "the configuration".into());
    failure.for_reader(&HintReader::Person(settings))
}

/// The command of an operation or a tool; `None` if the command line has none.
pub(super) fn command_of(name: &str) -> Option<String> {
    if name == RunCode::NAME {
        return Some("coracle run".to_owned());
    }
    if operations::ALL.iter().any(|it| it.name == name) {
        return Some(format!("coracle {}", word(name)));
    }
    if let Some(entry) = worktree::ALL.iter().find(|it| it.name == name) {
        return Some(format!("coracle worktree {}", operation_word(entry)));
    }
    if admin::ALL.iter().any(|it| it.name == name) {
        return Some(format!("coracle {name}"));
    }
    let mut callable = tools::ALL.iter().chain([&tools::SNAPSHOT]);
    let tool = callable.find(|it| it.name == name && it.sets.contains(&Toolset::Workspace));
    tool.map(|it| format!("coracle workspace {}", word(it.name)))
}

/// Rewrites the answer of an operation for users.
pub(super) fn for_people(entry: &OperationEntry, answer: &Map<String, Value>) -> Map<String, Value> {
    in_cli_words(entry.name, &entry.arguments(), answer)
}

/// Rewrites the answer of a tool. Its messages name other tools without backquotes.
pub(super) fn for_people_of_tool(entry: &OperationEntry, answer: &Map<String, Value>) -> Map<String, Value> {
    let mut shown = in_cli_words(entry.name, &entry.arguments(), answer);
    let message = text(&shown, "message").split(' ').map(named).collect::<Vec<_>>().join(" ");
    shown.insert("message".into(), message.into());
    if text(answer, "code") == "invalid_command" {
        let start = command_of(entry.name).unwrap_or_default();
        shown.insert("hint".into(), format!("the program and its words stand behind `--`: `{start} -- ls -l`").into());
    }
    shown
}

/// Rewrites a tool name without backquotes; other words stay.
fn named(word: &str) -> String {
    let bare = word.trim_end_matches(['.', ',', ';']);
    match command_of(bare).filter(|_| bare.contains('_')) {
        Some(command) => format!("`{command}`{}", &word[bare.len()..]),
        None => word.to_owned(),
    }
}

fn in_cli_words(name: &str, arguments: &Arguments, answer: &Map<String, Value>) -> Map<String, Value> {
    let mut shown = answer.clone();
    let code = text(answer, "code");
    let about_fields = ["invalid_input", "invalid_name", "unknown_field", "missing_field", "confirm_required"];
    if about_fields.contains(&code) {
        shown.insert("message".into(), with_options(text(answer, "message"), arguments).into());
    }
    let command = command_of(name).unwrap_or_else(|| "coracle".to_owned());
    let hint = match code {
        "missing_field" => {
            // The message already lists them.
            shown.insert("details".into(), Value::Null);
            format!("usage: {}", usage(&command, arguments).replace("       ", "or: "))
        }
        "cancelled" => cancelled(name, answer),
        _ if text(answer, "hint").contains("`details.problems`") => {
            format!("`{command} --help` says what each option takes")
        }
        _ => with_cli_names(text(answer, "hint"), Some(arguments)),
    };
    shown.insert("hint".into(), hint.into());
    shown
}

/// Describes what a cancelled call left.
fn cancelled(name: &str, answer: &Map<String, Value>) -> String {
    let details = answer.get("details").unwrap_or(&Value::Null);
    match details["tree_ended"].as_bool() {
        Some(true) => "nothing of the command is left running".to_owned(),
        Some(false) => "some of the command's processes may still run".to_owned(),
        None if name == "create" && details["left"].is_null() => "what was made is removed again".to_owned(),
        None => String::new(),
    }
}

/// Rewrites names in backquotes: fields to options, operations and tools to commands.
fn with_cli_names(text: &str, arguments: Option<&Arguments>) -> String {
    quoted(text, |part| arguments.and_then(|it| option(part, it)).or_else(|| command_of(part)))
}

/// Rewrites only fields: a message may name a container with the name of an operation.
fn with_options(text: &str, arguments: &Arguments) -> String {
    quoted(text, |part| option(part, arguments))
}

fn quoted(text: &str, new: impl Fn(&str) -> Option<String>) -> String {
    let mut parts: Vec<String> = text.split('`').map(str::to_owned).collect();
    let last = parts.len().saturating_sub(1);
    for part in parts.iter_mut().take(last).skip(1).step_by(2) {
        if let Some(new) = new(part) {
            *part = new;
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
    use coracle::{operations, tools, worktree};
    use insta::assert_snapshot;
    use serde_json::{Value, json};

    fn check(operation: &str, code: &str, message: &str, hint: &str, details: &Value) -> String {
        let entry = operations::ALL.iter().chain(worktree::ALL).find(|it| it.name == operation).unwrap();
        let answer = json!({ "code": code, "message": message, "hint": hint, "details": details.clone() });
        let shown = super::for_people(entry, answer.as_object().unwrap());
        format!("{} | {}", shown["message"].as_str().unwrap(), shown["hint"].as_str().unwrap())
    }

    #[test]
    fn hints_are_commands_and_options() {
        let message_of = |operation, code, message, hint| check(operation, code, message, hint, &json!({}));
        assert_snapshot!(message_of("copy_out", "path_exists", "`/x` exists", "leave `overwrite` out"), @"`/x` exists | leave `--overwrite` out");
        assert_snapshot!(message_of("destroy_all", "confirm_required", "`confirm` must be true", "call again with `confirm: true`"), @"`--confirm` must be true | call again with `--confirm`");
        assert_snapshot!(message_of("exec", "not_found", "no container `list`", "`list` shows them; `destroy_all` ends them"), @"no container `list` | `coracle list` shows them; `coracle destroy-all` ends them");
        assert_snapshot!(message_of("create", "invalid_input", "`env`: bad", "correct `env`; `details.problems` has everything"), @"`--env`: bad | `coracle create --help` says what each option takes");
    }

    #[test]
    fn tools_of_the_workspace_are_named_as_they_are_typed() {
        let message_of = |tool: &str, code: &str, message: &str| {
            let entry = tools::ALL.iter().find(|it| it.name == tool).unwrap();
            let answer = json!({ "code": code, "message": message, "hint": coracle_context::failure::tool_hint(code) });
            let shown = super::for_people_of_tool(entry, answer.as_object().unwrap());
            format!("{} | {}", shown["message"].as_str().unwrap(), shown["hint"].as_str().unwrap())
        };
        let message = "File already exists; use edit_file to modify existing content.";
        assert_snapshot!(message_of("write_file", "file_exists", message), @"File already exists; use `coracle workspace edit-file` to modify existing content. | change it with `coracle workspace edit-file`, or read it and write it with `--mode=overwrite`");
        assert_snapshot!(message_of("write_file", "missing_field", "required: `content`"), @"required: `<CONTENT>` | usage: coracle workspace write-file [OPTIONS] <PATH> <CONTENT>");
        assert_snapshot!(message_of("shell_execute", "invalid_command", "command must be an array of strings"), @"command must be an array of strings | the program and its words stand behind `--`: `coracle workspace shell-execute -- ls -l`");
    }

    #[test]
    fn a_missing_argument_is_reported_with_the_usage() {
        assert_snapshot!(check("exec", "missing_field", "required: `container`, `command`", "x", &json!({})), @r"
        required: `<CONTAINER>`, `<COMMAND>` | usage: coracle exec [OPTIONS] <CONTAINER> -- <WORDS>...
        or: coracle exec [OPTIONS] <CONTAINER> <COMMAND>
        ");
        let message_of = |code, hint| check("worktree_export", code, "required: `file`", hint, &json!({}));
        assert_snapshot!(message_of("missing_field", "x"), @"required: `<FILE>` | usage: coracle worktree export [OPTIONS] <WORKFLOW> <FILE>");
        assert_snapshot!(message_of("invalid_input", "`details.problems` has everything"), @"required: `<FILE>` | `coracle worktree export --help` says what each option takes");
    }

    #[test]
    fn an_interrupt_says_what_is_left() {
        let message_of = |operation, details: Value| check(operation, "cancelled", "cancelled", "", &details);
        assert_snapshot!(message_of("exec", json!({ "tree_ended": true })), @"cancelled | nothing of the command is left running");
        assert_snapshot!(message_of("create", json!({})), @"cancelled | what was made is removed again");
        assert_snapshot!(message_of("list", json!({})), @"cancelled |");
    }
}
