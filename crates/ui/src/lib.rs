//! `coracle ui`: containers, jobs, terminals and changes as a page in the user's browser.
//!
//! The page consists of files in this crate. It calls the operations of the command line, as the same user.
//!
//! **Invariant:** it listens on loopback addresses only, and loads nothing from another host.
//! **Invariant:** a request is refused unless its `Host` is this server and its cookie has the token.
//! **Invariant:** requests that change something need this page's `Origin`.

mod access;
mod assets;
mod calls;
mod files;
mod page;
mod responses;
mod samples;
mod terminal;
mod usage;
mod usage_log;

use std::io::{self, Write as _};
use std::sync::Arc;

use coracle_context::Failure;
use coracle_prepare::Process;
use coracle_transport::{Http, LEAVING, Token};

use self::access::PageAccess;
use self::page::PageServer;
use self::samples::UsageHistory;

/// Serves until a signal is received.
///
/// # Errors
/// If the server cannot listen.
pub async fn run(process: &Process, http: &Http) -> Result<(), Failure> {
    let cx = &process.context;
    let listener = http.bind().await?;
    let history = UsageHistory::open(&cx.state()?.usage());
    let (token, text) = Token::generate();
    let address = listener.address;
    let server = Arc::new(PageServer::new(process.clone(), PageAccess::new(token, &text, address), history));
    // An error only means that the user has closed that stream.
    let _ = writeln!(io::stdout(), "http://{address}/?token={text}").and_then(|()| io::stdout().flush());
    let _ = writeln!(io::stderr(), "open this address in a browser of this machine; Ctrl-C ends the page");
    let sampler = tokio::spawn(server.clone().sample());
    let open = listener.accept(&server, cx).await;
    sampler.abort();
    let leave = async { tokio::join!(open.shutdown(), Box::pin(server.end()), process.end()) };
    if tokio::time::timeout(LEAVING, leave).await.is_err() {
        tracing::warn!("calls of the page did not end in time");
    }
    Ok(())
}
