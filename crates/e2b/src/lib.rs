//! E2B's API over containers of Coracle, for the SDKs of E2B as they are: the control plane, and the processes and files of a
//! sandbox.
//!
//! A sandbox is a container with a time to live. SDKs need three variables: `E2B_API_URL` and `E2B_SANDBOX_URL` are the address
//! of the server, and `E2B_API_KEY` is the content of its file of the key. The interfaces are those of E2B's public
//! specification (`spec/openapi.yml` and `spec/envd` of `e2b-dev/E2B`), with Connect's messages in JSON.
//!
//! **Invariant:** a call can only narrow what the user's policy allows.
//! **Invariant:** what a request has and this server cannot do is refused, and not ignored.

mod api;
mod control;
mod files;
mod filesystem;
mod process;
mod rpc;
mod sandboxes;
mod server;
mod signature;
mod snapshots;

use std::io::{self, Write as _};
use std::sync::Arc;

use coracle::maintenance;
use coracle_context::Failure;
use coracle_prepare::Process;
use coracle_transport::{Http, LEAVING, Token};
use tokio_util::task::TaskTracker;

use self::control::Control;
use self::sandboxes::Sandboxes;
use self::server::Api;

/// Serves until the process is to end. Sandboxes stay until their time is over.
///
/// # Errors
/// Why the server cannot listen.
pub async fn run(process: &Process, http: &Http) -> Result<(), Failure> {
    let cx = &process.context;
    let default_file = cx.state()?.root().join("e2b-key");
    // SDKs refuse keys of another form.
    let key = Token::at_with_prefix(&http.token_file(cx, &default_file), cx.host.uid, "e2b_")?;
    let listener = http.bind().await?;
    let sandboxes = Arc::new(Sandboxes::open(process.clone())?);
    let upkeep = TaskTracker::new();
    upkeep.spawn(maintenance::run_maintenance(cx.clone()));
    upkeep.spawn(process.clone().run_maintenance());
    upkeep.spawn(sandboxes.clone().expire());
    upkeep.close();
    let (address, file) = (listener.address, http.token_file(cx, &default_file).display().to_string());
    let domain = format!("localhost:{}", address.port());
    let api = Arc::new(Api { key, control: Control { sandboxes, domain } });
    // A closed standard error is ignored.
    let _ = writeln!(
        io::stderr(),
        "serving E2B's API: E2B_API_URL=http://{address} E2B_SANDBOX_URL=http://{address} E2B_API_KEY=$(cat {file})"
    );
    let open = listener.accept(&api, cx).await;
    let leave = async { tokio::join!(open.shutdown(), process.end(), upkeep.wait()) };
    if tokio::time::timeout(LEAVING, leave).await.is_err() {
        tracing::warn!("connections did not end in time");
    }
    Ok(())
}
