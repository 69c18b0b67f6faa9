//! `coracle mcp`: the tools for an agent.

use clap::ArgMatches;
use coracle_context::{Failure, Frontend, Host, Options};
use coracle_prepare::Process;

#[cfg(feature = "serve")]
use super::{metrics, serve};
use super::{render, startup};

/// Serves agents until their input ends or a signal arrives; over HTTP until a signal arrives.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> Result<(), Failure> {
    #[cfg(feature = "serve")]
    {
        let http = serve::http(matches);
        if let Some(http) = &http {
            coracle_mcp::check(http, options)?;
        }
        metrics::enable(matches)?;
        let process = open(host, options, http.is_none())?;
        let _metrics = metrics::serve(matches, &process.context).await?;
        match http {
            Some(http) => coracle_mcp::run_http(&process, &http).await,
            None => coracle_mcp::run(&process).await,
        }
    }
    #[cfg(not(feature = "serve"))]
    {
        let _ = matches; // all that is left of its options is in `options`
        coracle_mcp::run(&open(host, options, true)?).await
    }
}

fn open(host: Host, options: &Options, is_stdio: bool) -> Result<Process, Failure> {
    if is_stdio && host.stdin_is_terminal {
        render::note("serving the Model Context Protocol to a program on standard input; Ctrl-C ends it");
    }
    startup::open_as(Frontend::Mcp, host, options)
}
