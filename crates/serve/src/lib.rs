//! `coracle serve`: operations and tools for programs, over one persistent connection.
//!
//! A client writes requests as lines of JSON and reads answers as they arrive, or uses HTTP.
//!
//! **Invariant:** an answer is the same as that of `coracle call`.
//! **Invariant:** standard output contains only lines of JSON.

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

/// Serves until the input ends or the process is to end; with `http` only the latter.
///
/// # Errors
/// Why the server cannot read or listen.
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
