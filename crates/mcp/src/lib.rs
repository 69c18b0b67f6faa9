//! The tools for agents over the Model Context Protocol, on standard input and output or over HTTP.
//!
//! A client's connection is a session. On standard input there is one; over HTTP each client has its own.

mod clients;
mod http;
mod message;
mod named_session;
mod progress_notifications;
mod server;
mod stdio;
mod tools;

use std::sync::Arc;

use coracle::maintenance;
use coracle_context::{Context, Failure};
use coracle_prepare::Process;
use coracle_transport::{Http, LEAVING, Session};
use rmcp::ServiceExt;
use tokio_util::task::TaskTracker;

pub use self::http::check;
use self::server::{Server, SessionSource};
use self::stdio::Stdio;
use self::tools::Tools;

/// Serves until the input ends or the process is to end; with `http` only the latter.
///
/// # Errors
/// Why the server cannot listen.
pub async fn run(process: &Process, http: Option<&Http>) -> Result<(), Failure> {
    let upkeep = TaskTracker::new();
    // The preflight has no engine yet, and no call waits for it.
    upkeep.spawn(maintenance::run_maintenance(process.context.clone()));
    upkeep.spawn(process.clone().run_maintenance());
    upkeep.close();
    match http {
        Some(http) => http::serve(http, process, upkeep.wait()).await,
        None => serve_one(process, upkeep.wait()).await,
    }
}

/// Serves the client at standard input and output. Waits for `upkeep` at the end.
async fn serve_one(process: &Process, upkeep: impl Future<Output = ()>) -> Result<(), Failure> {
    let session = Session::new(process.clone());
    let server = Server::new(SessionSource::One(session.clone().into()), Arc::new(Tools::for_process(process)));
    converse(server, &process.context).await?;
    let leave = async { tokio::join!(Box::pin(session.end()), process.end(), upkeep) };
    if tokio::time::timeout(LEAVING, leave).await.is_err() {
        tracing::warn!("the session's containers were not all removed in time; the next call continues");
    }
    Ok(())
}

async fn converse(server: Server, cx: &Context) -> Result<(), Failure> {
    let (input, output) = rmcp::transport::stdio_pipes();
    let starting = server.serve(Stdio::new(input, output));
    // A client that disconnects before its first message is not an error.
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
