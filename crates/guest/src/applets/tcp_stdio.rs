//! Connects a port inside to standard input and output, for a program of the host.

use std::io;

use tokio::io::{AsyncWriteExt as _, copy, stdin, stdout};

use crate::net::address::{addresses, connect};

/// Connects to a port, given as `8080` or `address:port`, and copies both ways until that end is closed. The end of the
/// input closes the connection for writing.
///
/// # Errors
/// When the text is no port; when the connection is refused, or breaks.
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
    // A program may go on sending to a peer that closed its end; the copy does not wait for it.
    sending.abort();
    out.flush().await?;
    received.map(drop)
}
