//! The start of a call of the user.

use coracle_context::{Failure, Frontend, Host, Options};
use coracle_prepare::Process;

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
