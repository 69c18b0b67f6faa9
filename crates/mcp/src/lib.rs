//! The tools for agents over the Model Context Protocol, on standard input and output or over HTTP.
//!
//! A client's connection is a session. On standard input there is one; over HTTP each client has its own.

#[cfg(feature = "http")]
mod clients;
mod elicitation;
#[cfg(feature = "http")]
mod http;
mod message;
#[cfg(feature = "http")]
mod named_session;
mod progress_notifications;
mod server;
mod stdio;
mod tools;

use std::sync::Arc;

use coracle::maintenance;
use coracle_context::{Context, Failure};
use coracle_prepare::Process;
use coracle_transport::{LEAVING, Session};
use rmcp::ServiceExt;
use tokio_util::task::TaskTracker;

#[cfg(feature = "http")]
pub use self::http::check;
use self::server::{Server, SessionSource};
use self::stdio::Stdio;
use self::tools::Tools;

/// Serves the client at standard input and output, until its input ends or the process is to end.
///
/// # Errors
/// The connection failed.
pub async fn run(process: &Process) -> Result<(), Failure> {
    serve_one(process, upkeep(process).wait()).await
}

/// Serves clients over HTTP until the process is to end.
///
/// # Errors
/// Why the server cannot listen.
#[cfg(feature = "http")]
pub async fn run_http(process: &Process, http: &coracle_transport::Http) -> Result<(), Failure> {
    http::serve(http, process, upkeep(process).wait()).await
}

/// Maintenance beside the calls.
fn upkeep(process: &Process) -> TaskTracker {
    let upkeep = TaskTracker::new();
    // The preflight has no engine yet, and no call waits for it.
    upkeep.spawn(maintenance::run_maintenance(process.context.clone()));
    upkeep.spawn(process.clone().run_maintenance());
    upkeep.close();
    upkeep
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
