//! The fields of an operation as positional arguments and options.

use clap::builder::{PossibleValuesParser, ValueParser};
use clap::{Arg, ArgAction, Command, value_parser};
use coracle::schema::Arguments;
use coracle::{OperationEntry, worktree};
use serde_json::Value;

use super::{help, shorthand};

/// Everything after `--`.
pub(super) const COMMAND: &str = "--";

/// `destroy_all` as `destroy-all`.
pub(super) fn word(name: &str) -> String {
    name.replace('_', "-")
}

/// `worktree_create` as `create`.
pub(super) fn operation_word(entry: &OperationEntry) -> String {
    word(entry.name.strip_prefix(worktree::PREFIX).unwrap_or(entry.name))
}

pub(super) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// The command of an operation: every field is an option, required ones also positional arguments in order.
pub(super) fn callable(name: &str, start: &str, arguments: &Arguments) -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the answer as JSON");
    let mut fields: Vec<_> = arguments.properties.iter().collect();
    fields.sort_by_cached_key(|(name, _)| help::place(name));
    let mut command = Command::new(word(name))
        .about(help::for_people(&summary(&arguments.description)))
        .long_about(help::for_people(&arguments.description))
        .override_usage(usage(start, arguments))
        .args(fields.into_iter().map(|(name, schema)| field(name, schema)))
        .arg(json.help_heading("Everywhere"));
    for name in words(arguments) {
        let help = about(&arguments.properties[name]);
        command = command.mut_arg(name, |it| it.hide(true));
        command = command.arg(Arg::new(as_word(name)).value_name(name.to_uppercase()).help(help));
    }
    if runs(arguments) {
        let rest = Arg::new(COMMAND).value_name("WORDS").last(true).num_args(0..);
        command = command.arg(rest.help("A program and its arguments, run without a shell"));
    }
    command
}

/// Id of a required field as a positional argument.
pub(super) fn as_word(name: &str) -> String {
    format!(" {name}")
}

/// Fields that can be positional arguments: required ones except flags, and an optional container, snapshot, source,
/// path or checkpoint unless it is marked as an option. Optional ones follow required ones, except one marked as the first.
pub(super) fn words(arguments: &Arguments) -> impl Iterator<Item = &String> {
    let required = arguments.required.iter().filter(|it| !is(&arguments.properties[*it], "boolean"));
    let named = |it: &str| ["container", "snapshot", "source", "path", "checkpoint"].contains(&it);
    let free = move |it: &&String| named(it) && !arguments.required.contains(it) && !arguments.is_option(it);
    let (first, last): (Vec<_>, Vec<_>) =
        arguments.properties.keys().filter(free).partition(|it| arguments.is_first(it));
    first.into_iter().chain(required).chain(last)
}

/// Whether it takes a command, whose arguments may follow `--`.
pub(super) fn runs(arguments: &Arguments) -> bool {
    arguments.required.iter().any(|it| it == "command")
}

pub(super) fn usage(start: &str, arguments: &Arguments) -> String {
    let line = |words: &mut dyn Iterator<Item = String>| {
        let start = format!("{start} [OPTIONS]");
        std::iter::once(start).chain(words).collect::<Vec<_>>().join(" ")
    };
    let shown = |it: &String| {
        let word = it.to_uppercase();
        if arguments.required.contains(it) { format!("<{word}>") } else { format!("[{word}]") }
    };
    let words: Vec<String> = words(arguments).map(shown).collect();
    let plain = line(&mut words.iter().cloned());
    if !runs(arguments) {
        return plain;
    }
    let others = words.iter().filter(|it| *it != "<COMMAND>").cloned();
    format!("{}\n       {plain}", line(&mut others.chain(["-- <WORDS>...".to_owned()])))
}

/// The first sentence, without its list of parts.
fn summary(text: &str) -> String {
    let sentence = text.split_once(". ").map_or(text, |(first, _)| first);
    sentence.split_once(": ").map_or(sentence, |(first, _)| first).trim_end_matches('.').to_owned()
}

/// The help of a field: its comment and default.
fn about(schema: &Value) -> String {
    let description = help::for_people(schema["description"].as_str().unwrap_or_default());
    match &schema["default"] {
        Value::Null | Value::Bool(false) => description,
        Value::String(text) => format!("{description} [default: {text}]"),
        other => format!("{description} [default: {other}]"),
    }
}

/// Whether a type is, or may be, this one.
pub(super) fn is(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::String(it) => it == kind,
        Value::Array(several) => several.iter().any(|it| it == kind),
        _ => false,
    }
}

/// Options with a letter, most of them those of `docker`: a field, its letter, and another name.
const SHORT: &[(&str, Option<char>, Option<&str>)] = &[
    ("env", Some('e'), None),
    ("ports", Some('p'), Some("publish")),
    ("mounts", Some('v'), Some("volume")),
    ("workdir", Some('w'), None),
    ("user", Some('u'), None),
    ("memory_limit", Some('m'), Some("memory")),
    ("cpu_limit", None, Some("cpus")),
    ("labels", Some('l'), None),
    ("force", Some('f'), None),
    ("attempts", Some('n'), Some("n")),
];

fn field(name: &str, schema: &Value) -> Arg {
    let arg = Arg::new(name.to_owned()).long(word(name)).help(about(schema)).help_heading(help::heading(name));
    let arg = match SHORT.iter().find(|(field, ..)| *field == name) {
        Some((_, short, long)) => arg.short(*short).aliases(*long),
        None => arg,
    };
    if is(schema, "boolean") {
        let arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL");
        return arg.value_parser(value_parser!(bool)).hide_possible_values(true);
    }
    let arg = arg.allow_hyphen_values(true).value_name(help::value(name).unwrap_or_else(|| value_name(schema)));
    let arg = arg.value_parser(parser(name, schema));
    let list = is(schema, "array") && !is(schema, "string");
    if !list && !is(schema, "object") {
        return arg.action(ArgAction::Set);
    }
    // `--ports` is a list; users give one item at a time.
    let one = word(name).strip_suffix('s').map(str::to_owned);
    arg.action(ArgAction::Append).visible_aliases(one)
}

/// What clap itself can check.
fn parser(name: &str, schema: &Value) -> ValueParser {
    let words: Vec<String> =
        schema["enum"].as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect();
    if !words.is_empty() {
        return PossibleValuesParser::new(words).into();
    }
    if is(schema, "object") {
        return ValueParser::new(shorthand::check_pair);
    }
    let name = name.to_owned();
    ValueParser::new(move |text: &str| shorthand::check_item(&name, text))
}

fn value_name(schema: &Value) -> &'static str {
    let nested = is(&schema["items"], "object");
    if is(schema, "object") {
        "KEY=VALUE"
    } else if nested {
        "JSON"
    } else if is(schema, "integer") && is(schema, "string") {
        "SIZE"
    } else if is(schema, "number") && is(schema, "string") {
        "TIME"
    } else if is(schema, "integer") || is(schema, "number") {
        "N"
    } else {
        "VALUE"
    }
}
