//! The table of operations as words of a command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgAction, Command, value_parser};
use serde_json::Value;

use crate::config::Engine;
use crate::op::Entry;
use crate::schema::Arguments;

/// Everything behind `--`.
pub(super) const COMMAND: &str = "--";

/// `destroy_all` as `destroy-all`.
pub(super) fn word(name: &str) -> String {
    name.replace('_', "-")
}

/// The whole command line.
pub(super) fn command(table: &[Entry]) -> Command {
    let mut root = Command::new("coracle")
        .about("Gives each AI agent a Linux machine of its own in a container")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .args(global());
    for entry in table {
        root = root.subcommand(operation(entry));
    }
    root.subcommands([shell(), setup(), call(), mcp()])
}

fn global() -> [Arg; 4] {
    let engine = PossibleValuesParser::new(["auto", "docker", "podman", "fake"]).map(|it| match it.as_str() {
        "docker" => Engine::Docker,
        "podman" => Engine::Podman,
        "fake" => Engine::Fake,
        _ => Engine::Auto,
    });
    [
        option("config", "FILE", "Configuration to read in place of the usual one")
            .value_parser(value_parser!(PathBuf)),
        option("state-dir", "DIR", "Where records are kept").value_parser(value_parser!(PathBuf)),
        option("engine", "NAME", "Engine to make containers with").value_parser(engine),
        option("session", "NAME", "Whose containers these are"),
    ]
    .map(|it| it.global(true).help_heading("Everywhere"))
}

fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn shell() -> Command {
    let name = Arg::new("name").value_name("CONTAINER").required(true).help("Its name, or an id of at least 12 digits");
    let root = Arg::new("as-root").long("as-root").action(ArgAction::SetTrue).help("As root inside");
    Command::new("shell").about("Open a shell in a container, for a person at a terminal").args([name, root])
}

fn setup() -> Command {
    let yes = Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help("Do it without asking");
    Command::new("setup").about("Get an engine on a machine that has none; shows each command first").arg(yes)
}

fn call() -> Command {
    let text = Arg::new("text").value_name("JSON").help("The call; from standard input when missing or `-`");
    let stream = Arg::new("stream").long("stream").action(ArgAction::SetTrue).help("Print news line by line as JSON");
    let schema = Arg::new("schema").long("schema").action(ArgAction::SetTrue).help("Print the tool's name and schema");
    Command::new("call").about("Make a call as JSON; prints one answer as JSON").args([text, stream, schema])
}

fn mcp() -> Command {
    Command::new("mcp").about("Serve the tool to an agent, by the Model Context Protocol on standard input and output")
}

/// One operation: every field an option, required ones also as words in their order.
fn operation(entry: &Entry) -> Command {
    let arguments = entry.arguments();
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the answer as JSON");
    let mut command = Command::new(word(entry.name))
        .about(first_sentence(&arguments.description))
        .long_about(arguments.description.clone())
        .override_usage(usage(entry.name, &arguments))
        .args(arguments.properties.iter().map(|(name, schema)| field(name, schema)))
        .arg(json.help_heading("Everywhere"));
    for name in words(&arguments) {
        let help = format!("The same as --{}", word(name));
        command = command.arg(Arg::new(as_word(name)).value_name(name.to_uppercase()).help(help));
    }
    if runs(&arguments) {
        let rest = Arg::new(COMMAND).value_name("WORDS").last(true).num_args(0..);
        command = command.arg(rest.help("A program and its words, run as they stand"));
    }
    command
}

/// Id of a required field where it stands as a bare word.
pub(super) fn as_word(name: &str) -> String {
    format!(" {name}")
}

/// Required fields that can stand as bare words: flags cannot.
pub(super) fn words(arguments: &Arguments) -> impl Iterator<Item = &String> {
    arguments.required.iter().filter(|it| !is(&arguments.properties[*it], "boolean"))
}

/// It takes a command, whose words may follow `--`.
fn runs(arguments: &Arguments) -> bool {
    arguments.required.iter().any(|it| it == "command")
}

fn usage(name: &str, arguments: &Arguments) -> String {
    let line = |words: &mut dyn Iterator<Item = String>| {
        let start = format!("coracle {} [OPTIONS]", word(name));
        std::iter::once(start).chain(words).collect::<Vec<_>>().join(" ")
    };
    let words: Vec<String> = words(arguments).map(|it| format!("<{}>", it.to_uppercase())).collect();
    let plain = line(&mut words.iter().cloned());
    if !runs(arguments) {
        return plain;
    }
    let others = words.iter().filter(|it| *it != "<COMMAND>").cloned();
    format!("{}\n       {plain}", line(&mut others.chain(["-- <WORDS>...".to_owned()])))
}

fn first_sentence(text: &str) -> String {
    text.split_once(". ").map_or(text, |(first, _)| first).trim_end_matches('.').to_owned()
}

/// Whether a type is, or may be, this one.
pub(super) fn is(schema: &Value, kind: &str) -> bool {
    match &schema["type"] {
        Value::String(it) => it == kind,
        Value::Array(several) => several.iter().any(|it| it == kind),
        _ => false,
    }
}

fn field(name: &str, schema: &Value) -> Arg {
    let help = schema["description"].as_str().unwrap_or_default().to_owned();
    let arg = Arg::new(name.to_owned()).long(word(name)).help(help);
    if is(schema, "boolean") {
        let arg = arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL");
        return arg.value_parser(value_parser!(bool)).hide_possible_values(true);
    }
    let arg = arg.allow_hyphen_values(true).value_name(value_name(schema));
    let words: Option<Vec<String>> =
        schema["enum"].as_array().map(|it| it.iter().filter_map(|it| it.as_str().map(str::to_owned)).collect());
    let parser =
        words.filter(|it| !it.is_empty()).map_or_else(ValueParser::string, |it| PossibleValuesParser::new(it).into());
    let many = is(schema, "array") && !is(schema, "string") || is(schema, "object");
    arg.value_parser(parser).action(if many { ArgAction::Append } else { ArgAction::Set })
}

fn value_name(schema: &Value) -> &'static str {
    let nested = is(&schema["items"], "object");
    if is(schema, "object") {
        "KEY=VALUE"
    } else if nested {
        "JSON"
    } else if is(schema, "integer") || is(schema, "number") && !is(schema, "string") {
        "N"
    } else {
        "VALUE"
    }
}

#[cfg(test)]
mod tests {
    use crate::ops;

    #[test]
    fn the_command_line_fits_together() {
        super::command(ops::ALL).debug_assert();
    }
}
