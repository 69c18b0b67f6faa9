//! The session tools for users: `coracle workspace …` and `coracle run`.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use clap::ArgMatches;
use coracle::{CallResponse, OperationEntry, frontend, tools};
use coracle_context::{Code, Failure, Host, Options};
use coracle_prepare::Process;
use coracle_workspace::RunCode;
use serde_json::{Map, Value, json};

use super::reporter::Reporter;
use super::{cli_messages, exit, matches_to_json, startup, written};
use crate::render;

/// Maximum bytes of a snippet that are read; the tool accepts fewer.
const MAX_SNIPPET: u64 = (1 << 20) + 1;

/// Runs a tool of the workspace.
pub(super) async fn workspace(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let Some((name, matches)) = matches.subcommand() else { return ExitCode::from(exit::NOT_UNDERSTOOD) };
    let process = match startup::open(host, options) {
        Ok(process) => process,
        Err(failure) => return exit::failed(&failure),
    };
    let json = matches.get_flag("json");
    let callable = tools::ALL.iter().chain([&tools::SNAPSHOT]);
    if let Some(entry) = callable.into_iter().find(|it| super::operation_args::word(it.name) == name) {
        let mut arguments = matches_to_json::fields(&entry.arguments(), matches);
        let read = written::from_stdin(&process.context, entry, matches, &mut arguments).await;
        return match read {
            Ok(()) => call(&process, entry, arguments, json).await,
            Err(failure) if json => exit::finish(&failure.answer(None)),
            Err(failure) => exit::failed(&failure),
        };
    }
    ExitCode::from(exit::NOT_UNDERSTOOD)
}

/// Runs a snippet from a file or from standard input.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let json = matches.get_flag("json");
    let file = matches.get_one::<String>("file").map_or("-", String::as_str);
    let parse = || -> Result<(Process, Map<String, Value>), Failure> {
        let code = snippet(&host, file)?;
        let mut arguments = json!({ "code": code });
        let language = matches.get_one::<String>("language").map(String::as_str).or_else(|| by_name(file));
        if let Some(language) = language {
            arguments["language"] = language.into();
        }
        if let Some(timeout) = matches.get_one::<String>("timeout") {
            arguments["timeout"] = timeout.as_str().into();
        }
        if let Some(timeout) = matches.get_one::<u64>("timeout-ms") {
            arguments["timeout_ms"] = (*timeout).into();
        }
        Ok((startup::open(host.clone(), options)?, arguments.as_object().cloned().unwrap_or_default()))
    };
    match parse() {
        Ok((process, arguments)) => match tools::ALL.iter().find(|it| it.name == RunCode::NAME) {
            Some(entry) => call(&process, entry, arguments, json).await,
            None => ExitCode::from(exit::NOT_UNDERSTOOD),
        },
        Err(failure) if json => exit::finish(&failure.answer(None)),
        Err(failure) => exit::failed(&failure),
    }
}

async fn call(process: &Process, entry: &OperationEntry, arguments: Map<String, Value>, json: bool) -> ExitCode {
    if json {
        return exit::finish(&frontend::execute_tool(process, *entry, arguments, None).await.json);
    }
    let (begun, host) = (Instant::now(), &process.context.host);
    let mut reporter = Reporter::new(host);
    // The answer has the complete output of the program.
    let mut on_event = |event| reporter.show_event(&event);
    let response = frontend::execute_tool(process, *entry, arguments, Some(&mut on_event)).await;
    reporter.clear();
    let code = show(entry, &response);
    let both = host.stdout_is_terminal && host.stderr_is_terminal;
    if let Some((stdout, stderr, code)) = printed(&response.json).filter(|_| both) {
        let last = [stdout, stderr].into_iter().rfind(|it| !it.is_empty());
        render::ran(Some(code), begun.elapsed(), last.is_none_or(|it| it.ends_with('\n')));
    }
    code
}

/// Prints the output of a program to its streams, and everything else as text.
fn show(entry: &OperationEntry, response: &CallResponse) -> ExitCode {
    if let Some((stdout, stderr, code)) = printed(&response.json) {
        render::warnings(&response.json);
        render::printed(stdout, stderr);
        return ExitCode::from(code);
    }
    if response.is_success() {
        // Its text includes the warnings.
        render::print(response.text.as_deref().unwrap_or_default().trim_end());
        return ExitCode::SUCCESS;
    }
    render::complain(&cli_messages::for_people_of_tool(entry, &response.json));
    ExitCode::FAILURE
}

/// The output and exit code of a command or a snippet that ran.
fn printed(answer: &Map<String, Value>) -> Option<(&str, &str, u8)> {
    let value = answer.get("value").and_then(Value::as_object);
    let (fields, names) = match value {
        Some(value) => (value, ["stdout", "stderr", "exit_code"]),
        None => (answer, ["output", "stderr", "exitCode"]),
    };
    let code = u8::try_from(fields.get(names[2])?.as_u64()?).ok()?;
    Some((fields.get(names[0])?.as_str()?, fields.get(names[1])?.as_str()?, code))
}

fn snippet(host: &Host, file: &str) -> Result<String, Failure> {
    let failed = |err: std::io::Error| {
        Failure::new(Code::PathNotFound, format!("cannot read `{}`: {err}", file.escape_debug()))
            .hint("name a file, or `-` for standard input")
    };
    let mut bytes = Vec::new();
    if file == "-" {
        std::io::stdin().lock().take(MAX_SNIPPET).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        let opened = std::fs::File::open(host.path(Path::new(file))).map_err(failed)?;
        opened.take(MAX_SNIPPET).read_to_end(&mut bytes).map_err(failed)?;
    }
    String::from_utf8(bytes).map_err(|_| Failure::invalid("file", "is no text in UTF-8"))
}

fn by_name(file: &str) -> Option<&'static str> {
    Some(match Path::new(file).extension()?.to_str()? {
        "ts" | "mts" | "tsx" => "typescript",
        "js" | "mjs" | "cjs" => "javascript",
        "py" => "python",
        "sh" | "bash" => "bash",
        _ => return None,
    })
}
