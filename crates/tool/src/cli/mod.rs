//! The command line: every operation as a subcommand, and what only a person does.

mod audit;
mod collect;
mod command;
mod consent;
mod copy;
mod help;
mod job;
mod logs;
mod operation;
mod packages;
mod phrase;
mod present;
#[cfg(test)]
mod remedies;
mod reporter;
mod sandbox;
mod saved;
mod shell;
mod short;
mod stdin;
mod tool;
mod trust;
mod worker;
mod worktree;
mod written;
mod wrong;
mod yours;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;
use serde_json::{Map, Value};

use self::operation::operation;
use crate::call::{self, Call};
use crate::config::{Config, Engine, Toolset};
use crate::context::{Mouth, Options};
use crate::failure::{Code, Failure};
use crate::host::Host;
use crate::process::Process;
use crate::{frontend, mcp, ops, render, setup};

/// Exit code of a command line that says nothing we know.
const NOT_UNDERSTOOD: u8 = 2;

/// The program: reads the command line, and does what it says.
#[must_use]
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    program(&words.into_iter().collect::<Vec<OsString>>())
}

/// Not generic: the crate that calls a generic function compiles all that the function reaches once more.
fn program(words: &[OsString]) -> ExitCode {
    let matches = match command::command(ops::ALL, words).try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(err) => return misread(&err, words),
    };
    let host = match Host::look() {
        Ok(host) => host,
        Err(err) => return homeless(&err.into(), words),
    };
    // One call needs one thread; threads take longer to start than a command over a link.
    let serves = matches.subcommand_name() == Some("mcp");
    let mut runtime = match serves {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    };
    match runtime.enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(run(&matches, host));
            // A read of standard input that nobody waits for any more would hold the process.
            runtime.shutdown_background();
            code
        }
        Err(err) => told(&Failure::internal(err)),
    }
}

/// A command line without a call. Help goes to standard output, complaints to standard error.
fn misread(err: &clap::Error, words: &[OsString]) -> ExitCode {
    let Some(failure) = wrong::failure(err, words) else {
        // A closed output changes nothing.
        let _ = err.print();
        return ExitCode::from(if err.use_stderr() { NOT_UNDERSTOOD } else { 0 });
    };
    if wrong::wants_json(words) {
        render::print(&Value::Object(wrong::answer(&failure, words)).to_string());
    } else {
        render::complain(&failure.answer(None));
    }
    ExitCode::from(NOT_UNDERSTOOD)
}

/// There is no place to work from; a caller that reads JSON is told in JSON.
fn homeless(failure: &Failure, words: &[OsString]) -> ExitCode {
    if wrong::wants_json(words) {
        render::print(&Value::Object(failure.answer(None)).to_string());
        return ExitCode::FAILURE;
    }
    told(failure)
}

async fn run(matches: &ArgMatches, host: Host) -> ExitCode {
    let Some((name, matches)) = matches.subcommand() else { return ExitCode::from(NOT_UNDERSTOOD) };
    let options = options(matches);
    phrase::settings_are_in(Config::location(options.config.as_deref(), &host));
    match name {
        "call" if matches.get_flag("schema") => call::print_schema(),
        "call" => {
            let call = Call { text: matches.get_one::<String>("text").cloned(), stream: matches.get_flag("stream") };
            call::run(call, host, &options).await
        }
        "mcp" => {
            let http = matches.get_one::<String>("http").map(|address| mcp::Http {
                address: address.clone(),
                token_file: matches.get_one::<PathBuf>("token-file").cloned(),
            });
            if http.is_none() && host.stdin_is_terminal {
                render::note("serving the Model Context Protocol to a program on standard input; Ctrl-C ends it");
            }
            let toolsets = matches.get_many::<Toolset>("toolsets").map(|it| it.copied().collect());
            code(mcp::run(host, &Options { toolsets, ..options }, http.as_ref()).await)
        }
        "setup" => {
            let mut out = anstream::stderr();
            code(setup::run(matches.get_flag("yes"), &host, &mut out).await)
        }
        "saved" => saved::run(matches, host, &options).await,
        "audit" => audit::run(matches, host, &options).await,
        "start" | "stop" | "adopt" => yours::run(name, matches, host, &options).await,
        "logs" => logs::run(matches, host, &options).await,
        copy::CP => copy::run(matches, host, &options).await,
        "workspace" => tool::workspace(matches, host, &options).await,
        "run" => match matches.subcommand() {
            Some((command::PACKAGES, matches)) => packages::run(matches, host, &options).await,
            _ => tool::run(matches, host, &options).await,
        },
        "images" if matches.subcommand_name() == Some(command::TRUST) => match matches.subcommand() {
            Some((_, matches)) => trust::run(matches, host, &options).await,
            None => ExitCode::from(NOT_UNDERSTOOD),
        },
        "worktree" => Box::pin(worktree::run(matches, host, &options)).await,
        "worker" => worker::run(matches, host, &options).await,
        "sandbox" => Box::pin(sandbox::run(matches, host, &options)).await,
        "shell" => match shell::run(matches, host, &options).await {
            Ok(never) => match never {},
            Err(failure) => told(&failure),
        },
        "exec" if matches.get_flag(operation::TERMINAL) => match shell::exec(matches, host, &options).await {
            Ok(never) => match never {},
            Err(failure) => operation::not_run(&failure),
        },
        _ => match ops::ALL.iter().find(|it| command::word(it.name) == name) {
            Some(entry) => operation((ops::ALL, entry), matches, host, &options).await,
            None => ExitCode::from(NOT_UNDERSTOOD),
        },
    }
}

fn options(matches: &ArgMatches) -> Options {
    Options {
        config: matches.get_one::<PathBuf>("config").cloned(),
        state_dir: matches.get_one::<PathBuf>("state-dir").cloned(),
        engine: matches.get_one::<Engine>("engine").copied(),
        session: matches.get_one::<String>("session").cloned(),
        toolsets: None,
    }
}

/// A process of the person's, with its log and its signals.
fn open(host: Host, options: &Options) -> Result<Process, Failure> {
    let process = Process::open(host, options, Mouth::Cli)?;
    frontend::log(&process.context);
    frontend::cancel_on_signals(process.context.call.cancel.clone()).map_err(Failure::internal)?;
    Ok(process)
}

/// The same, where nothing can be done with a configuration that is wrong.
fn open_configured(host: Host, options: &Options) -> Result<Process, Failure> {
    let process = open(host, options)?;
    process.context.configured()?;
    Ok(process)
}

/// The same object as `call` prints.
fn finish(answer: &Map<String, Value>) -> ExitCode {
    render::print(&Value::Object(answer.clone()).to_string());
    if answer.get("success") == Some(&Value::Bool(true)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn code(result: Result<(), Failure>) -> ExitCode {
    result.map_or_else(|failure| told(&failure), |()| ExitCode::SUCCESS)
}

fn told(failure: &Failure) -> ExitCode {
    phrase::complain(failure);
    if failure.code == Code::Cancelled { ExitCode::from(frontend::interrupted_code()) } else { ExitCode::FAILURE }
}
