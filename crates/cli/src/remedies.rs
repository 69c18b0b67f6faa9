//! Tests that every command in a message, a hint or a help text is valid.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use coracle::{Audience, admin, operations, tools, worktree};

use super::command::command;
use super::command_words::with_escape;
use super::operation_args::word;
use super::{cli_messages, help};

/// Whether the command line accepts the command and its options. Some are named without required arguments.
fn check(line: &str) -> Result<(), String> {
    // Replaces placeholders.
    let line = line.replace('…', "x").replace("\\\"", "\"").replace("\\n", " ");
    let words = shlex::split(&line).ok_or_else(|| format!("`{line}` has an open quote"))?;
    // Only one command; pipes and redirections belong to the shell.
    let words = words.into_iter().take_while(|it| !["&&", "|", "<", ">", "||", ";"].contains(&it.as_str()));
    let words: Vec<OsString> = words.map(Into::into).collect();
    if help::is_about_all(&words) {
        return Ok(());
    }
    let root = command(operations::ALL, &words);
    let words = with_escape(&root, &words);
    match root.try_get_matches_from(&words) {
        Ok(_) => Ok(()),
        Err(err) => match err.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Ok(()),
            // A placeholder for a command.
            ErrorKind::InvalidSubcommand if line == "coracle help COMMAND" => Ok(()),
            _ => Err(format!("`{line}`: {}", err.render().to_string().lines().next().unwrap_or_default())),
        },
    }
}

/// Commands in backquotes, in all strings of a source file except comments and tests.
fn named(source: &str) -> Vec<String> {
    let tested = source.find("#[cfg(test)]\nmod tests").unwrap_or(source.len());
    let lines = source[..tested].lines().filter(|it| !it.trim_start().starts_with("//"));
    // A string may continue on the next line.
    let text: String = lines.map(|it| format!("{}\n", it.trim())).collect::<String>().replace("\\\n", "");
    let spans = text.split('`').filter(|it| it.starts_with("coracle ") && !it.contains('\n'));
    // Replaces a placeholder by an argument. Placeholders for a whole command have a separate test.
    spans.filter(|it| !it.starts_with("coracle {") && !it.starts_with("coracle worktree {")).map(filled).collect()
}

/// Replaces `{id}` by a word, or by the name of an engine or an agent where one is required.
fn filled(span: &str) -> String {
    let mut parts = span.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let word = match () {
            () if text.ends_with("--engine ") => "docker",
            () if text.ends_with("coracle agent ") => "claude",
            () => "it",
        };
        format!("{text}{word}{}", part.split_once('}').map_or("", |(_, rest)| rest))
    })
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_command_in_a_text_is_one() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crates).unwrap().flatten() {
        sources(&entry.path().join("src"), &mut files);
    }
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in files.iter().filter(|it| !it.ends_with("cli/src/remedies.rs")) {
        for line in named(&std::fs::read_to_string(file).unwrap()) {
            seen += 1;
            wrong.extend(check(&line).err().map(|err| format!("{}: {err}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A search that finds nothing would always pass.
    assert!(seen > 30, "only {seen} commands were found");
}

#[test]
fn what_no_command_is_would_be_found() {
    assert!(check("coracle worktree-export w1").is_err() && check("coracle worktree export w1").is_ok());
    assert!(check("coracle list --nothing").is_err() && check("coracle saved restore").is_ok());
    let source = "x(\"see `coracle worktree-create {id} --help` \\\n    and more\")\n// `coracle nothing`\n";
    assert_eq!(named(source), ["coracle worktree-create it --help"]);
}

#[test]
fn every_operation_and_tool_has_a_command() {
    let operations = operations::ALL.iter().chain(admin::ALL).chain(worktree::ALL);
    let operations = operations.filter(|it| it.audience != Audience::Session).map(|it| (it.name, it.arguments()));
    let is_admin = |name: &str| admin::ALL.iter().any(|it| it.name == name);
    let callable = tools::ALL.iter().chain([&tools::SNAPSHOT]).map(|it| (it.name, it.arguments()));
    let mut seen = 0;
    for (name, arguments) in operations.chain(callable) {
        // Workflows of agents have no command: users start a worker.
        let Some(command) = cli_messages::command_of(name) else {
            assert!(name.starts_with("workflow_") || name == "shell_output", "`{name}` has no command");
            continue;
        };
        seen += 1;
        check(&format!("{command} --help")).unwrap();
        for field in arguments.properties.keys().filter(|_| name != "run_code" && !is_admin(name)) {
            let help = format!("{command} --{} --help", word(field));
            // A missing value or the help is fine; an unknown option is not.
            assert!(!check(&help).is_err_and(|it| it.contains("unexpected argument")), "{help}");
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn every_example_of_a_help_is_one() {
    let root = command(operations::ALL, &[]);
    let names = root.get_subcommands().map(|it| it.get_name().to_owned()).collect::<Vec<_>>();
    let texts = names.iter().map(|it| help::examples(it)).chain([help::EXAMPLES]);
    let lines: Vec<&str> = texts.flat_map(str::lines).map(str::trim).filter(|it| it.starts_with("coracle ")).collect();
    assert!(lines.len() > 20);
    for line in lines {
        // A description of the example follows after spaces.
        check(line.split("   ").next().unwrap()).unwrap();
    }
}

/// The text of each hint for both readers.
fn shared_hints(source: &str) -> Vec<String> {
    let tested = source.find("#[cfg(test)]\nmod tests").unwrap_or(source.len());
    let calls = source[..tested].split(".hint(").skip(1);
    let end = |it: &str| ["),\n", ";\n", "\n}"].iter().filter_map(|end| it.find(end)).min().unwrap_or(it.len());
    calls.map(|it| it[..end(it)].to_owned()).collect()
}

#[test]
fn no_hint_for_users_refers_to_the_user() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let mut wrong = Vec::new();
    for file in files.iter().filter(|it| !it.ends_with("cli/src/remedies.rs")) {
        let hints = shared_hints(&std::fs::read_to_string(file).unwrap());
        // A hint for agents needs another one for users.
        let for_agents = |it: &String| it.contains("the user") && !it.contains("hint_for(");
        wrong.extend(hints.into_iter().filter(for_agents).map(|it| format!("{}: {it}", file.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(shared_hints("x.hint(\"ask the user\");\n y").len(), 1);
}
