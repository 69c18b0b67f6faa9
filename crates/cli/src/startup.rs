//! The start of a call of the user.

use coracle_context::{Failure, Frontend, Host, Options};
use coracle_prepare::Process;

use super::{logging, signals};

/// A process with its log and signals.
pub(super) fn open(host: Host, options: &Options) -> Result<Process, Failure> {
    let process = open_as(Frontend::Cli, host, options)?;
    leave_proxies_running(&process);
    Ok(process)
}

/// The proxies of containers outlive this process.
pub(super) fn leave_proxies_running(process: &Process) {
    match std::env::current_exe() {
        Ok(program) => process.context.proxies().run_by(program),
        Err(err) => tracing::debug!(%err, "the path of this program is unknown, so proxies end with this process"),
    }
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
