//! `coracle mcp`: the tools for agents, over standard input and output or over HTTP.
//!
//! A client's connection is a session. On standard input there is one; over HTTP each client has its own.

mod http;
mod message;
mod news;
mod scan;
mod server;
mod session;
mod stdio;
mod token;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::http::Http;
use self::server::{Server, Whose};
use self::session::Session;
use self::stdio::Stdio;
use self::tools::Tools;
use crate::context::{Context, Mouth, Options};
use crate::failure::Failure;
use crate::host::Host;
use crate::process::Process;
use crate::progress::Progress;
use crate::{frontend, maintenance, ops, session_tools};

/// What a session still does when its connection ends has this long to end.
const LEAVING: Duration = Duration::from_secs(30);

/// Serves until the input ends or a signal comes; with `http` until a signal comes.
pub(crate) async fn run(host: Host, options: &Options, http: Option<&Http>) -> Result<(), Failure> {
    if let Some(http) = http {
        http.check(options)?;
    }
    let process = Process::open(host, options, Mouth::Mcp)?;
    let cx = &process.context;
    frontend::log(cx);
    frontend::cancel_on_signals(cx.call.cancel.clone()).map_err(Failure::internal)?;
    let upkeep = TaskTracker::new();
    // Preflight has found no engine yet, and nobody waits for this.
    upkeep.spawn(maintenance::keep_up(cx.clone()));
    upkeep.spawn(process.clone().keep_up());
    upkeep.close();
    match http {
        Some(http) => http.serve(&process, upkeep.wait()).await,
        None => serve_one(&process, upkeep.wait()).await,
    }
}

/// Serves the client at standard input and output. `upkeep` is waited for at the end.
async fn serve_one(process: &Process, upkeep: impl Future<Output = ()>) -> Result<(), Failure> {
    let session = Session::new(process.clone());
    let server = Server::new(Whose::One(session.clone().into()), Arc::new(Tools::of(process)));
    converse(server, &process.context).await?;
    let leave = async { tokio::join!(Box::pin(session.end()), process.end(), upkeep) };
    if tokio::time::timeout(LEAVING, leave).await.is_err() {
        tracing::warn!("the session's containers were not all removed in time; the next call goes on with it");
    }
    Ok(())
}

async fn converse(server: Server, cx: &Context) -> Result<(), Failure> {
    let (input, output) = rmcp::transport::stdio_pipes();
    let starting = server.serve(Stdio::new(input, output));
    // A client that goes away before it has said a word is no fault.
    let service = tokio::select! {
        service = starting => match service {
            Ok(service) => service,
            Err(err) => {
                tracing::info!("no session began: {err}");
                return Ok(());
            }
        },
        () = cx.call.cancel.cancelled() => return Ok(()),
    };
    let stop = service.cancellation_token();
    let waiting = service.waiting();
    tokio::pin!(waiting);
    let ended = tokio::select! {
        ended = &mut waiting => ended,
        () = cx.call.cancel.cancelled() => {
            stop.cancel();
            waiting.await
        }
    };
    ended.map(drop).map_err(Failure::internal)
}

/// What is done with the session's containers (containers.md 14.9).
async fn on_session_end(cx: &Context) {
    // The token of the session has fired, and this work goes on all the same.
    let cx = cx.for_call(CancellationToken::new(), Progress::none());
    let (_, rooms) = tokio::join!(ops::end_session(&cx), session_tools::end(&cx));
    if let Err(failure) = rooms {
        tracing::warn!(session = %cx.call.session, "the session left something: {}", failure.message);
    }
}
