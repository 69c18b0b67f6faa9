//! What a call of the person's begins with.

use std::path::PathBuf;

use clap::ArgMatches;
use coracle::{Failure, Frontend, Host, Options, Process};
use coracle_transport::Http;

use super::{logging, signals};

/// A process of the person's, with its log and its signals.
pub(super) fn open(host: Host, options: &Options) -> Result<Process, Failure> {
    open_as(Frontend::Cli, host, options)
}

/// The same, where the person acts in another way.
pub(super) fn open_as(frontend: Frontend, host: Host, options: &Options) -> Result<Process, Failure> {
    let process = Process::open(host, options, frontend)?;
    logging::start(&process.context);
    signals::cancel_on_signals(process.context.call.cancel.clone()).map_err(Failure::internal)?;
    Ok(process)
}

/// The same, where nothing can be done with a configuration that is wrong.
pub(super) fn open_configured(host: Host, options: &Options) -> Result<Process, Failure> {
    let process = open(host, options)?;
    process.context.configured()?;
    Ok(process)
}

/// How clients connect, if not by standard input and output.
pub(super) fn http(matches: &ArgMatches) -> Option<Http> {
    let token_file = matches.try_get_one::<PathBuf>("token-file").ok().flatten().cloned();
    matches.get_one::<String>("http").map(|address| Http { flag: "http", address: address.clone(), token_file })
}
