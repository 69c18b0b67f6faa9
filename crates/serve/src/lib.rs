//! `coracle serve`: operations and tools for programs, over one connection that stays open.
//!
//! A client writes requests as lines of JSON and reads answers as they come, or sends them over HTTP.
//!
//! **Invariant:** an answer has what `coracle call` gives for the same call.
//! **Invariant:** standard output has lines of JSON only.

mod call;
mod catalog;
mod http;
mod input;
mod lines;
mod openapi;
mod request;
mod stdio;

use coracle::maintenance;
use coracle_context::Failure;
use coracle_prepare::Process;
use coracle_transport::{Http, Session};
use tokio_util::task::TaskTracker;

pub use self::openapi::document;

/// Serves until the input ends or the process is to end; with `http` until it is to end.
///
/// # Errors
/// What keeps the server from reading or listening.
pub async fn run(process: &Process, http: Option<&Http>) -> Result<(), Failure> {
    let upkeep = TaskTracker::new();
    upkeep.spawn(maintenance::run_maintenance(process.context.clone()));
    upkeep.spawn(process.clone().run_maintenance());
    upkeep.close();
    if let Some(http) = http {
        return http::serve(http, process, upkeep.wait()).await;
    }
    stdio::serve(&Session::new(process.clone()), process, upkeep.wait()).await;
    Ok(())
}
