//! Converts arguments of the command line to the object of a call.

use clap::ArgMatches;
use coracle::OperationEntry;
use coracle::schema::Arguments;
use coracle_prepare::shorthand;
use serde_json::{Map, Value};

use super::operation_args::{COMMAND, as_word, is, words};

/// The call for the arguments. Dispatch reports what they cannot express, as for any call.
pub(super) fn object(entry: &OperationEntry, matches: &ArgMatches) -> Map<String, Value> {
    let mut object = Map::from_iter([("operation".to_owned(), entry.name.into())]);
    object.extend(fields(&entry.arguments(), matches));
    object
}

/// Only the fields.
pub(super) fn fields(arguments: &Arguments, matches: &ArgMatches) -> Map<String, Value> {
    let mut object = Map::new();
    for (name, schema) in &arguments.properties {
        if let Some(value) = field(name, schema, matches) {
            object.insert(name.clone(), value);
        }
    }
    // Only operations that run a command have this id.
    if let Ok(Some(command)) = matches.try_get_many::<String>(COMMAND) {
        object.insert("command".into(), command.map(|it| Value::from(it.as_str())).collect());
    }
    // Positional arguments fill the fields without an option, in order.
    let given: Vec<&String> =
        words(arguments).filter_map(|it| matches.try_get_one::<String>(&as_word(it)).ok().flatten()).collect();
    let mut open: Vec<&String> = words(arguments).filter(|it| !object.contains_key(*it)).collect();
    if is_left_out(&open, &given, arguments) {
        open.remove(0);
    }
    for (name, text) in open.into_iter().zip(given) {
        object.insert(name.clone(), scalar(&arguments.properties[name], text));
    }
    object
}

/// Whether an optional first field is left out, so that the arguments are the required fields after it: in `forward
/// --workflow ID 8000` the number is the port, not a container.
fn is_left_out(open: &[&String], given: &[&String], arguments: &Arguments) -> bool {
    let is_required = |name: &&&String| arguments.required.contains(**name);
    let required: Vec<&&String> = open.iter().filter(is_required).collect();
    let fits = |(name, text): (&&&String, &&String)| {
        let schema = &arguments.properties[**name];
        let is_number = is(schema, "integer") || is(schema, "number");
        !is_number || scalar(schema, text).is_number()
    };
    open.first().is_some_and(|first| !arguments.required.contains(*first) && arguments.is_first(first))
        && given.len() == required.len()
        && required.iter().zip(given).all(fits)
}

fn field(name: &str, schema: &Value, matches: &ArgMatches) -> Option<Value> {
    if is(schema, "boolean") {
        return matches.get_one::<bool>(name).map(|it| Value::from(*it));
    }
    let texts: Vec<&str> = matches.get_many::<String>(name)?.map(String::as_str).collect();
    if is(schema, "object") {
        return Some(pairs(&texts));
    }
    if is(schema, "array") && !is(schema, "string") {
        return Some(list(name, schema, &texts));
    }
    texts.last().map(|text| scalar(schema, text))
}

/// `KEY=VALUE`, or JSON objects; later ones override earlier ones.
fn pairs(texts: &[&str]) -> Value {
    let mut fields = Map::new();
    for text in texts {
        match (serde_json::from_str(text), text.split_once('=')) {
            (Ok(Value::Object(more)), _) => fields.extend(more),
            (_, Some((key, value))) => drop(fields.insert(key.to_owned(), value.into())),
            // Not a pair: dispatch reports the expected form.
            (_, None) => return Value::from(*text),
        }
    }
    Value::Object(fields)
}

/// Each text is an item; a JSON list is replaced by its items.
fn list(name: &str, schema: &Value, texts: &[&str]) -> Value {
    let mut items = Vec::new();
    for text in texts {
        match serde_json::from_str(text) {
            Ok(Value::Array(more)) => items.extend(more),
            Ok(object @ Value::Object(_)) => items.push(object),
            _ => items.push(shorthand::item(name, text).unwrap_or_else(|| scalar(&schema["items"], text))),
        }
    }
    Value::Array(items)
}

fn scalar(schema: &Value, text: &str) -> Value {
    let read = || serde_json::from_str::<Value>(text).ok();
    let number = || read().filter(Value::is_number);
    let nested = || read().filter(|it| it.is_array() || it.is_object());
    let is_number = is(schema, "integer") || is(schema, "number");
    let is_nested = is(schema, "object") || is(schema, "array");
    // An untyped item accepts any value.
    let free = schema.get("type").is_none();
    let value = if is_number { number() } else { None };
    value.or_else(|| if is_nested || free { nested() } else { None }).unwrap_or_else(|| text.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use coracle::{Effect, Operation, OperationEntry};
    use coracle_context::document::{Document, Render};
    use coracle_context::{Context, Failure, Script, Seconds};
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};

    use crate::command::command;

    /// Tries.
    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct TryOut {
        container: String,
        command: Script,
        #[serde(default)]
        timeout: Option<Seconds>,
        #[serde(default)]
        mount_cwd: Option<bool>,
        #[serde(default)]
        env: BTreeMap<String, String>,
        #[serde(default)]
        setup_commands: Vec<Script>,
        #[serde(default)]
        ports: Vec<BTreeMap<String, u16>>,
        #[serde(default)]
        pids_limit: Option<u32>,
    }

    impl Operation for TryOut {
        const NAME: &'static str = "try_out";
        const EFFECT: Effect = Effect::Mutating;
        type Response = NoFields;
        async fn run(self, _: &Context) -> Result<NoFields, Failure> {
            Ok(NoFields {})
        }
    }

    #[derive(Serialize)]
    struct NoFields {}

    impl Render for NoFields {
        fn render(&self, _: jiff::Timestamp) -> Document {
            Document::default()
        }
    }

    fn check(words: &[&str], mut object: Value) {
        let entry = OperationEntry::for_operation::<TryOut>();
        let all = ["coracle", "try-out"].iter().chain(words);
        let matches = command(&[entry], &[]).try_get_matches_from(all).unwrap();
        object["operation"] = "try_out".into();
        assert_eq!(Value::Object(super::object(&entry, matches.subcommand().unwrap().1)), object);
    }

    #[test]
    fn required_fields_may_stand_as_words() {
        check(&["web", "ls -l"], json!({ "container": "web", "command": "ls -l" }));
        check(&["--container", "web", "ls"], json!({ "container": "web", "command": "ls" }));
        check(&["web"], json!({ "container": "web" }));
    }

    #[test]
    fn a_container_that_a_workflow_replaces_leaves_its_word_to_the_port() {
        let calls = [
            (&["web", "8000"][..], json!({ "container": "web", "container_port": 8000 })),
            (&["--workflow", "w", "8000"], json!({ "workflow": "w", "container_port": 8000 })),
            (&["8000"], json!({ "container_port": 8000 })),
            (&["web"], json!({ "container": "web" })),
            (&["web", "--container-port", "8000"], json!({ "container": "web", "container_port": 8000 })),
        ];
        let entry = coracle::operations::ALL.iter().find(|it| it.name == "forward").unwrap();
        for (words, mut expected) in calls {
            let all = ["coracle", "forward"].iter().chain(words);
            let matches = command(&[*entry], &[]).try_get_matches_from(all).unwrap();
            expected["operation"] = "forward".into();
            assert_eq!(Value::Object(super::object(entry, matches.subcommand().unwrap().1)), expected, "{words:?}");
        }
    }

    #[test]
    fn what_follows_two_dashes_is_a_list_of_words() {
        check(&["web", "--", "ls", "-l", "--json"], json!({ "container": "web", "command": ["ls", "-l", "--json"] }));
    }

    #[test]
    fn values_are_read_by_the_type_of_their_field() {
        check(&["--timeout", "5", "--pids-limit=7"], json!({ "timeout": 5, "pids_limit": 7 }));
        check(&["--timeout", "10m", "--pids-limit=x"], json!({ "timeout": "10m", "pids_limit": "x" }));
        check(&["--mount-cwd"], json!({ "mount_cwd": true }));
        check(&["--mount-cwd=false"], json!({ "mount_cwd": false }));
        check(&["--env", "A=1=2", "--env", r#"{"B":"3"}"#], json!({ "env": { "A": "1=2", "B": "3" } }));
        check(
            &["--setup-commands", "true", "--setup-commands", r#"[["a","b"]]"#],
            json!({ "setup_commands": ["true", ["a", "b"]] }),
        );
        let two = json!({ "ports": [{ "container": 80 }, { "container": 81, "host": 8081 }] });
        check(&["--ports", r#"{"container":80}"#, "--port", "8081:81"], two);
    }
}
