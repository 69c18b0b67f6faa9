//! The start of a call of the user.

use std::path::PathBuf;

use clap::ArgMatches;
use coracle_context::{Failure, Frontend, Host, Options};
use coracle_prepare::Process;
use coracle_transport::Http;

use super::{logging, signals};

/// A process with its log and signals.
pub(super) fn open(host: Host, options: &Options) -> Result<Process, Failure> {
    open_as(Frontend::Cli, host, options)
}

/// The same, for another front end.
pub(super) fn open_as(frontend: Frontend, host: Host, options: &Options) -> Result<Process, Failure> {
    let process = Process::open(host, options, frontend)?;
    logging::start(&process.context);
    signals::cancel_on_signals(process.context.call.cancel.clone()).map_err(Failure::internal)?;
    Ok(process)
}

/// The same, for a call that needs a valid configuration.
pub(super) fn open_configured(host: Host, options: &Options) -> Result<Process, Failure> {
    let process = open(host, options)?;
    process.context.configured()?;
    Ok(process)
}

/// The HTTP server, unless clients use standard input and output.
pub(super) fn http(matches: &ArgMatches) -> Option<Http> {
    let token_file = matches.try_get_one::<PathBuf>("token-file").ok().flatten().cloned();
    matches.get_one::<String>("http").map(|address| Http { flag: "http", address: address.clone(), token_file })
}
