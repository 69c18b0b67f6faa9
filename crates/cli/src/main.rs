//! The program `coracle`: every operation as a subcommand, and commands for users only.
//!
//! Parses arguments, calls the library, and prints the result.
//!
//! **Invariant:** standard output carries answers only; everything else goes to standard error.

mod admin;
mod agent;
mod approvals;
mod attach;
mod call;
mod cli_messages;
mod command;
mod command_words;
mod completions;
mod consent;
mod container_proxy;
mod copy;
mod copy_stdout;
mod doctor;
mod exit;
mod file_limit;
mod help;
mod init;
mod job;
mod keyboard;
mod logging;
mod logs;
mod matches_to_json;
mod mcp;
#[cfg(feature = "serve")]
mod metrics;
mod named_commands;
#[cfg(feature = "ssh")]
mod open_editor;
mod operation;
mod operation_args;
mod operation_call;
mod output;
mod planned_file;
mod program_path;
#[cfg(test)]
mod remedies;
mod render;
mod reporter;
mod sandbox;
#[cfg(feature = "serve")]
mod serve;
mod setup;
mod shell;
mod shorthand;
mod signals;
#[cfg(feature = "ssh")]
mod ssh_config;
mod startup;
mod stdin;
mod stdio;
mod terminal;
mod timings;
mod tools;
mod top;
#[cfg(feature = "serve")]
mod ui;
mod usage_error;
mod worker;
mod worktree;
mod written;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ArgMatches;
use coracle::operations;
use coracle_context::config::{Config, Engine, Toolset};
use coracle_context::{Failure, Host, Options, proxy_process};
use serde_json::Value;

use self::operation_call::OperationCall;
use crate::call::Call;

fn main() -> ExitCode {
    program(&std::env::args_os().collect::<Vec<OsString>>())
}

/// Parses the command line and runs it.
fn program(words: &[OsString]) -> ExitCode {
    if help::is_about_all(words) {
        let help = help::with_root_help(command::command(operations::ALL, &[]), true).render_help();
        render::print(help.ansi().to_string().trim_end());
        return exit_code(ExitCode::SUCCESS, None);
    }
    let root = command::command(operations::ALL, words);
    let words = &command_words::with_escape(&root, words);
    let matches = match root.try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(err) => return print_usage(&err, words),
    };
    if let Some(code) = completions::run(&matches, || command::command(operations::ALL, &[])) {
        return exit_code(code, None);
    }
    let host = match Host::detect() {
        Ok(host) => host,
        Err(err) => return no_host(&err.into(), words),
    };
    // A single call needs one thread; threads take longer to start than a command over a link.
    let serves = matches!(matches.subcommand_name(), Some("mcp" | "serve" | "ui"));
    if serves {
        file_limit::raise();
    }
    let mut runtime = match serves {
        true => tokio::runtime::Builder::new_multi_thread(),
        false => tokio::runtime::Builder::new_current_thread(),
    };
    match runtime.enable_all().build() {
        Ok(runtime) => {
            let has_timings = matches.get_flag("timings") && !serves;
            if has_timings {
                timings::enable();
            }
            let code = runtime.block_on(run(&matches, host));
            coracle_telemetry::end_traces();
            if has_timings {
                timings::print(usage_error::wants_json(words));
            }
            let code = exit_code(code, matches.subcommand_name());
            // A pending read of standard input would block the end of the process.
            runtime.shutdown_background();
            code
        }
        Err(err) => exit::failed(&Failure::internal(err)),
    }
}

/// Reports errors of standard output. An otherwise successful command has then failed.
fn exit_code(code: ExitCode, command: Option<&str>) -> ExitCode {
    let Some(failure) = stdio::failure() else { return code };
    cli_messages::complain(&failure);
    if code != ExitCode::SUCCESS {
        return code;
    }
    ExitCode::from(if matches!(command, Some("exec" | "job-wait")) { output::NOT_RUN } else { 1 })
}

/// Prints help to standard output, or errors of the command line to standard error.
fn print_usage(err: &clap::Error, words: &[OsString]) -> ExitCode {
    let Some(failure) = usage_error::failure(err, words) else {
        let text = err.render().ansi().to_string();
        if err.use_stderr() {
            render::note(text.trim_end());
            return ExitCode::from(exit::NOT_UNDERSTOOD);
        }
        render::print(text.trim_end());
        return exit_code(ExitCode::SUCCESS, None);
    };
    if usage_error::wants_json(words) {
        render::print(&Value::Object(usage_error::answer(&failure, words)).to_string());
    } else {
        render::complain(&failure.answer(None));
    }
    ExitCode::from(exit::NOT_UNDERSTOOD)
}

/// Reports a host without a home or working directory, as JSON if the caller reads JSON.
fn no_host(failure: &Failure, words: &[OsString]) -> ExitCode {
    if usage_error::wants_json(words) {
        render::print(&Value::Object(failure.answer(None)).to_string());
        return ExitCode::FAILURE;
    }
    exit::failed(failure)
}

async fn run(matches: &ArgMatches, host: Host) -> ExitCode {
    let admin = admin::find(matches);
    let Some((name, matches)) = matches.subcommand() else { return ExitCode::from(exit::NOT_UNDERSTOOD) };
    let options = options(matches);
    cli_messages::settings_are_in(Config::location(options.config.as_deref(), &host));
    if let Some((entry, matches)) = admin {
        let calls = OperationCall::each_from_matches(coracle::admin::ALL, entry, matches);
        return Box::pin(operation::run_each(calls, host, &options)).await;
    }
    match name {
        "call" if matches.get_flag("schema") => call::print_schema(),
        "call" => {
            let call = Call { text: matches.get_one::<String>("text").cloned(), stream: matches.get_flag("stream") };
            call::run(call, host, &options).await
        }
        "mcp" => {
            let toolsets = matches.get_many::<Toolset>("toolsets").map(|it| it.copied().collect());
            exit::code(mcp::run(matches, host, &Options { toolsets, ..options }).await)
        }
        #[cfg(feature = "serve")]
        "serve" => serve::run(matches, host, &options).await,
        "setup" => {
            let mut out = anstream::stderr();
            exit::code(setup::run(matches.get_flag("yes"), &host, &mut out).await)
        }
        #[cfg(feature = "ssh")]
        "ssh-config" => exit::code(ssh_config::run(matches, host, &options).await),
        #[cfg(feature = "ssh")]
        ssh_config::PROXY => exit::code(ssh_config::serve(matches, host, &options).await),
        #[cfg(feature = "ssh")]
        "open" => exit::code(open_editor::run(matches, host, &options).await),
        "approvals" => Box::pin(approvals::run(matches, host, &options)).await,
        proxy_process::COMMAND => exit::code(container_proxy::run(matches, host, &options).await),
        "attach" => attach::run(matches, host, &options).await,
        "top" => top::run(matches, host, &options).await,
        #[cfg(feature = "serve")]
        "ui" => ui::run(matches, host, &options).await,
        "doctor" => doctor::run(matches, host, &options).await,
        "init" => init::run(matches, &host, &options),
        "logs" => logs::run(matches, host, &options).await,
        copy::CP => copy::run(matches, host, &options).await,
        "workspace" => tools::workspace(matches, host, &options).await,
        "run" => tools::run(matches, host, &options).await,
        "worktree" => Box::pin(worktree::run(matches, host, &options)).await,
        "agent" => Box::pin(agent::run(matches, host, &options)).await,
        "worker" => worker::run(matches, host, &options).await,
        "sandbox" => Box::pin(sandbox::forward(matches, host, &options)).await,
        "shell" => match shell::run(matches, host, &options).await {
            Ok(code) => code,
            Err(failure) => exit::failed(&failure),
        },
        "exec" if matches.get_flag(operation_call::TERMINAL) => match shell::exec(matches, host, &options).await {
            Ok(code) => code,
            Err(failure) => operation::not_run(&failure),
        },
        _ => match operations::ALL.iter().find(|it| operation_args::word(it.name) == name) {
            Some(entry) => {
                let calls = OperationCall::each_from_matches(operations::ALL, entry, matches);
                Box::pin(operation::run_each(calls, host, &options)).await
            }
            None => ExitCode::from(exit::NOT_UNDERSTOOD),
        },
    }
}

fn options(matches: &ArgMatches) -> Options {
    Options {
        config: matches.get_one::<PathBuf>("config").cloned(),
        state_dir: matches.get_one::<PathBuf>("state-dir").cloned(),
        engine: matches.get_one::<Engine>("engine").copied(),
        session: matches.get_one::<String>("session").cloned(),
        settings: None,
        toolsets: None,
    }
}
