//! Connects a port inside to standard input and output, for a program of the host.

use std::io;

use tokio::io::{AsyncWriteExt as _, copy, stdin, stdout};

use crate::net::address::{addresses, connect};

/// Connects to a port, given as `8080` or `address:port`, and copies both ways until the port closes the connection. The
/// end of the input closes the connection for writing.
///
/// # Errors
/// Fails if the text is not a port, or if the connection is refused or breaks.
pub async fn pipe(text: &str) -> io::Result<()> {
    let addresses = addresses(text).map_err(|fault| io::Error::other(fault.message))?;
    let stream = connect(&addresses).await?;
    let (mut from, mut to) = stream.into_split();
    let sending = async move {
        copy(&mut stdin(), &mut to).await?;
        to.shutdown().await
    };
    let sending = tokio::spawn(sending);
    let mut out = stdout();
    let received = copy(&mut from, &mut out).await;
    // A program may continue to send to a peer that closed its end; do not wait for the copy.
    sending.abort();
    out.flush().await?;
    received.map(drop)
}
