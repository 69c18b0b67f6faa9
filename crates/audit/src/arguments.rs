//! Selects what a line of the trail shows of a call's arguments.
//!
//! **Invariant:** the value of a field is written only if the field is in `SHOWN`; of any other field only the size is
//! written, and never a digest: a reader could try guesses at a digest of a secret.

use coracle_types::Excerpt;
use serde_json::{Map, Value, json};

/// Maximum length of a text; longer ones are truncated.
const MAX_CHARS: usize = 256;

/// Maximum length of a program's name; longer words may be a token.
const MAX_PROGRAM_CHARS: usize = 32;

/// Fields whose values are names, paths, numbers or fixed words, and no secrets.
const SHOWN: &[&str] = &[
    "act",
    "action",
    "address",
    "after",
    "agent",
    "as_root",
    "attempt_timeout",
    "attempts",
    "base",
    "branch",
    "channel",
    "checkpoint",
    "columns",
    "compose_file",
    "compose_project",
    "container",
    "container_path",
    "container_port",
    "context",
    "cpu_limit",
    "cwd",
    "devcontainer",
    "encoding",
    "file",
    "format",
    "from",
    "grace",
    "host_path",
    "host_port",
    "idle",
    "idle_for",
    "if_exists",
    "image",
    "interval",
    "into",
    "job",
    "job_id",
    "language",
    "limit",
    "line",
    "lines",
    "max_bytes",
    "max_matches",
    "max_output",
    "memory_limit",
    "mode",
    "model",
    "name",
    "network",
    "newest",
    "offset",
    "older_than",
    "on_timeout",
    "other_checkpoint",
    "output_id",
    "path",
    "pids_limit",
    "port",
    "profile",
    "pull",
    "purpose",
    "record",
    "replay",
    "retries",
    "rows",
    "save",
    "scope",
    "session_name",
    "shell",
    "silence_timeout",
    "since",
    "snapshot",
    "source",
    "stream",
    "terminal",
    "time",
    "timeout",
    "timeout_ms",
    "to",
    "user",
    "workdir",
    "workflow",
];

/// Fields of which only the names are written: of variables, and of files.
const NAMES_SHOWN: &[&str] = &["env", "config_files", "dotfiles_inline"];

/// Returns the arguments as the trail shows them.
pub fn args(args: &Map<String, Value>) -> Map<String, Value> {
    args.iter().map(|(name, argument)| (name.clone(), shown(name, argument))).collect()
}

/// Returns the name of the object of a call.
pub fn name(argument: &Value) -> Value {
    argument.as_str().map(text_of).into()
}

/// Returns the program of a command, without its directory. A word that does not look like the name of a program may be
/// a secret, and is left out.
#[must_use]
pub fn program(first_word: &str) -> &str {
    let name = first_word.rsplit('/').next().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-');
    if name.len() <= MAX_PROGRAM_CHARS && name.chars().all(fits) { name } else { "" }
}

fn shown(name: &str, argument: &Value) -> Value {
    match argument {
        Value::Bool(_) | Value::Null => argument.clone(),
        Value::Number(_) if SHOWN.contains(&name) => argument.clone(),
        Value::String(text) if SHOWN.contains(&name) => text_of(text).into(),
        _ if name == "command" => json!({ "first": first_word(argument), "bytes": bytes(argument) }),
        _ if NAMES_SHOWN.contains(&name) => json!({ "keys": names(argument) }),
        Value::Array(items) => json!({ "count": items.len() }),
        Value::Object(fields) => json!({ "count": fields.len() }),
        Value::Number(_) | Value::String(_) => json!({ "bytes": bytes(argument) }),
    }
}

/// Returns the size of a text, or of all texts in a list.
fn bytes(argument: &Value) -> usize {
    match argument {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes).sum(),
        other => other.to_string().len(),
    }
}

/// Returns the names in an object, or in a list of `NAME=VALUE`.
fn names(argument: &Value) -> Vec<String> {
    let names: Vec<&str> = match argument {
        Value::Object(fields) => fields.keys().map(String::as_str).collect(),
        Value::Array(pairs) => {
            pairs.iter().filter_map(Value::as_str).filter_map(|pair| Some(pair.split_once('=')?.0)).collect()
        }
        _ => Vec::new(),
    };
    names.into_iter().take(20).map(text_of).collect()
}

/// Removes user parts and queries of URLs, control and direction characters.
fn text_of(text: &str) -> String {
    let without_query = if text.contains("://") { text.split(['?', '#']).next().unwrap_or_default() } else { text };
    let cut: String = without_query.chars().take(MAX_CHARS).collect();
    Excerpt::from_bytes(cut.as_bytes()).as_str().to_owned()
}

fn first_word(command: &Value) -> String {
    let first = match command {
        Value::Array(words) => words.first().and_then(Value::as_str).unwrap_or_default(),
        other => other.as_str().unwrap_or_default().split_whitespace().next().unwrap_or_default(),
    };
    // `TOKEN=x command` would show the value.
    match first.split_once('=') {
        Some((name, _)) => program(name).to_owned() + "=…",
        None => program(first).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::args;

    fn check(given: Value, expected: &Value) {
        let Value::Object(given) = given else { panic!("no object") };
        assert_eq!(&Value::Object(args(&given)), expected);
    }

    #[test]
    fn only_listed_fields_are_shown_and_all_others_by_their_size() {
        check(json!({ "env": { "A": "canary" }, "timeout": 5 }), &json!({ "env": { "keys": ["A"] }, "timeout": 5 }));
        check(json!({ "env": ["A=canary", "canary"] }), &json!({ "env": { "keys": ["A"] } }));
        check(json!({ "image": "https://u:p@h/x\u{1b}\u{202e}" }), &json!({ "image": "https://h/x\\u{1b}\\u{202e}" }));
        check(json!({ "source": "https://h/x?token=canary" }), &json!({ "source": "https://h/x" }));
        check(json!({ "stdin": "canary", "pin": 12345 }), &json!({ "stdin": { "bytes": 6 }, "pin": { "bytes": 5 } }));
        check(
            json!({ "setup_commands": ["canary"], "labels": { "a": "canary" }, "is_new": true }),
            &json!({ "setup_commands": { "count": 1 }, "labels": { "count": 1 }, "is_new": true }),
        );
    }

    #[test]
    fn of_a_command_only_the_program_is_shown() {
        for (command, first) in [
            (json!("TOKEN=canary curl"), "TOKEN=…"),
            (json!(["/usr/bin/curl", "-u", "canary"]), "curl"),
            (json!("ghp_16C7e42F292c6912E7710c838347Ae178B4a"), ""),
            (json!("$(canary)"), ""),
            (json!("canary;x"), ""),
        ] {
            let Value::Object(given) = json!({ "command": command }) else { panic!("no object") };
            assert_eq!(args(&given)["command"]["first"], first, "{command}");
        }
    }
}
