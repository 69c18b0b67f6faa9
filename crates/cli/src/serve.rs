//! `coracle serve`: operations and tools for a program.

use std::process::ExitCode;

use clap::ArgMatches;
use coracle::{Failure, Frontend, Host, Options, Process};

use super::{exit, logging, render, signals};

/// Serves a program until its input ends or a signal comes.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    if matches.get_flag("openapi") {
        return match Process::open(host, options, Frontend::Serve) {
            Ok(process) => {
                render::print(&format!("{:#}", coracle_serve::document(&process)));
                ExitCode::SUCCESS
            }
            Err(failure) => exit::failed(&failure),
        };
    }
    if host.stdin_is_terminal {
        render::note("serving a program on standard input, one JSON object per line; Ctrl-D ends it");
    }
    exit::code(serve(host, options).await)
}

async fn serve(host: Host, options: &Options) -> Result<(), Failure> {
    let process = Process::open(host, options, Frontend::Serve)?;
    logging::start(&process.context);
    signals::cancel_on_signals(process.context.call.cancel.clone()).map_err(Failure::internal)?;
    coracle_serve::run(&process).await
}
