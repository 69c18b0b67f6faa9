//! `coracle ui`: the page in a browser of this machine.

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use coracle_context::{Failure, Frontend, Host, Options};
use coracle_transport::Http;

use super::operation_args::option;
use super::{exit, metrics, serve, startup};

/// The subcommand.
pub(super) fn command() -> Command {
    let about = "Serve a page to a browser of this machine: containers, jobs, terminals, changes";
    let address = option("http", "ADDRESS:PORT", "Where the page is served, on a loopback address");
    Command::new("ui").about(about).arg(address.default_value("127.0.0.1:0")).arg(metrics::arg())
}

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    exit::code(serve_page(matches, host, options).await)
}

async fn serve_page(matches: &ArgMatches, host: Host, options: &Options) -> Result<(), Failure> {
    let Some(http) = serve::http(matches) else { return Err(Failure::internal("`--http` has a default")) };
    // Reports a wrong address before anything is opened.
    Http::address(&http)?;
    metrics::enable(matches)?;
    let process = startup::open_as(Frontend::Ui, host, options)?;
    process.context.configured()?;
    let _metrics = metrics::serve(matches, &process.context).await?;
    coracle_ui::run(&process, &http).await
}
