//! `coracle ui`: the containers, jobs, terminals and changes as a page in a person's browser.
//!
//! The page is made of files in this crate. It calls the operations that the command line has, as the same person.
//!
//! **Invariant:** it listens on loopback addresses only, and loads nothing from another machine.
//! **Invariant:** a request gets nothing but a refusal unless its `Host` is this server and its cookie has the token.
//! **Invariant:** what changes something comes with this page's `Origin`.

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

/// Serves until a signal comes.
///
/// # Errors
/// What keeps the server from listening.
pub async fn run(process: &Process, http: &Http) -> Result<(), Failure> {
    let cx = &process.context;
    let listener = http.bind().await?;
    let history = UsageHistory::open(&cx.state()?.usage());
    let (token, text) = Token::generate();
    let address = listener.address;
    let server = Arc::new(PageServer::new(process.clone(), PageAccess::new(token, &text, address), history));
    // A person who has closed that stream needs no telling.
    let _ = writeln!(io::stdout(), "http://{address}/?token={text}").and_then(|()| io::stdout().flush());
    let _ = writeln!(io::stderr(), "open this address in a browser of this machine; Ctrl-C ends the page");
    let sampler = tokio::spawn(server.clone().sample());
    let open = listener.accept(&server, cx).await;
    sampler.abort();
    let leave = async { tokio::join!(open.shutdown(), Box::pin(server.end()), process.end()) };
    if tokio::time::timeout(LEAVING, leave).await.is_err() {
        tracing::warn!("calls of the page did not end in time; the next call goes on with what they began");
    }
    Ok(())
}
