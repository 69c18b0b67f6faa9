//! A bridge from standard input and output to the guest, for a host that has no other connection.

use std::io;
use std::path::Path;

use tokio::net::UnixStream;

use crate::protocol::SOCKET_GONE;
use crate::protocol::paths::{RUN, SOCKET};

/// Copies both ways between the standard streams and PID 1's socket, until one side closes.
///
/// # Errors
/// Fails if the listener is not PID 1, or if the connection breaks.
pub async fn connect() -> io::Result<()> {
    // All frames of the host pass through this memory.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    let mut stream = match UnixStream::connect(Path::new(RUN).join(SOCKET)).await {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Err(io::Error::other(SOCKET_GONE)),
        connected => connected?,
    };
    if stream.peer_cred()?.pid() != Some(1) {
        return Err(io::Error::other("the process that listens on the socket is not the guest"));
    }
    let (mut from, mut to) = stream.split();
    let (mut stdin, mut stdout) = (tokio::io::stdin(), tokio::io::stdout());
    tokio::select! {
        copied = tokio::io::copy(&mut stdin, &mut to) => copied?,
        copied = tokio::io::copy(&mut from, &mut stdout) => copied?,
    };
    Ok(())
}
