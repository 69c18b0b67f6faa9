//! `coracle serve`: operations and tools for a program.

use std::process::ExitCode;

use clap::ArgMatches;
use coracle_context::config::Toolset;
use coracle_context::{Failure, Frontend, Host, Options};
use coracle_prepare::Process;
use coracle_transport::Http;

use super::{exit, logging, metrics, render, signals, startup};

/// Tools of programs besides operations, regardless of the toolsets for agents: packages are generated for these.
const TOOLSETS: [Toolset; 4] = [Toolset::Classic, Toolset::Workspace, Toolset::Code, Toolset::Worktrees];

/// Serves a program until its input ends or a signal arrives; over HTTP until a signal arrives.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let settings = matches.get_one::<String>("settings").cloned();
    let options = &Options { toolsets: Some(TOOLSETS.to_vec()), settings, ..options.clone() };
    if matches.get_flag("openapi") {
        return match Process::open(host, options, Frontend::Serve) {
            Ok(process) => {
                render::print(&format!("{:#}", coracle_serve::document(&process)));
                ExitCode::SUCCESS
            }
            Err(failure) => exit::failed(&failure),
        };
    }
    let http = startup::http(matches);
    if http.is_none() && host.stdin_is_terminal {
        render::note("serving a program on standard input, one JSON object per line; Ctrl-D ends it");
    }
    exit::code(serve(matches, host, options, http.as_ref()).await)
}

async fn serve(matches: &ArgMatches, host: Host, options: &Options, http: Option<&Http>) -> Result<(), Failure> {
    // Reports a wrong address before anything is opened.
    http.map(Http::address).transpose()?;
    metrics::enable(matches)?;
    let process = Process::open(host, options, Frontend::Serve)?;
    logging::start(&process.context);
    signals::cancel_on_signals(process.context.call.cancel.clone()).map_err(Failure::internal)?;
    let _metrics = metrics::serve(matches, &process.context).await?;
    coracle_serve::run(&process, http).await
}
