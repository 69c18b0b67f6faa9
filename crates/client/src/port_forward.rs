//! Forwards ports of this host into a container: each connection runs a program of the guest that connects to the port
//! inside.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use coracle_types::{Command, ContainerPath, Exec, Ids, Input, Result, Stream};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, copy, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Link;

/// The guest's program.
const GUEST: &str = "/.coracle/guest";

/// Concurrent connections; more wait to be accepted.
const MAX_CONNECTIONS: usize = 64;

/// Delay after a failed accept, for example if there is no free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// Queued pieces and bytes of a connection.
const WAITING: usize = 16;
const BUFFER: usize = 64 << 10;

/// Retained error output of a failed attempt.
const RETAINED: usize = 4 << 10;

/// A port of 127.0.0.1 that accepts connections until this value is dropped.
#[derive(Debug)]
pub struct PortForward {
    /// The port.
    pub port: u16,
    _over: DropGuard,
}

/// Listens on a port of 127.0.0.1, a free one for 0, and passes each connection to `connect`. Connections end when the value
/// is dropped.
///
/// # Errors
/// If the port is not available.
pub async fn forward_port<F>(
    port: u16,
    connect: impl Fn(TcpStream) -> F + Send + Sync + 'static,
) -> io::Result<PortForward>
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let port = listener.local_addr()?.port();
    let over = CancellationToken::new();
    tokio::spawn(accept(listener, over.clone(), connect));
    Ok(PortForward { port, _over: over.drop_guard() })
}

async fn accept<F>(listener: TcpListener, over: CancellationToken, connect: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (mut connections, permits) = (JoinSet::new(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    let accepting = async {
        while let Ok(permit) = permits.clone().acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let connecting = connect(stream);
                    connections.spawn(async move {
                        connecting.await;
                        drop(permit);
                    });
                    while connections.try_join_next().is_some() {}
                }
                Err(err) => {
                    tracing::debug!(%err, "a connection was not accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    };
    // Dropping the set ends the connections and their programs.
    over.run_until_cancelled(accepting).await;
}

/// Copies both ways between a connection and a port of the container's loopback, until one side closes.
///
/// # Errors
/// As [`join_address`].
pub async fn join_port(link: &Link, stream: TcpStream, user: Ids, port: u16) -> Result<()> {
    let (from, to) = stream.into_split();
    join_address(link, from, to, user, &port.to_string()).await
}

/// As [`join_port`], for any stream of this host, and an address as seen in the container: `8080`, or `10.0.0.7:8080`.
///
/// # Errors
/// If the guest's program cannot be run. A refused connection at the address is not an error.
pub async fn join_address(
    link: &Link,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    user: Ids,
    address: &str,
) -> Result<()> {
    let (mut input, theirs) = duplex(BUFFER);
    let (live, mut output) = mpsc::channel(WAITING);
    let cancel = CancellationToken::new();
    let _ends = cancel.clone().drop_guard();
    let argv = [GUEST.to_owned(), "pipe".to_owned(), address.to_owned()];
    let exec = Exec {
        bare: true,
        stdin: Some(Input::Stream(Box::new(theirs))),
        live: Some(live),
        cancel,
        keep_bytes: RETAINED,
        // Everything is passed on here, and nothing is read later.
        passes_on: Some(usize::MAX),
        ..Exec::new(Command::Argv(argv.into()), user, ContainerPath::root())
    };
    let sending = async {
        let _ = copy(&mut from, &mut input).await;
        drop(input);
        std::future::pending::<()>().await;
    };
    let receiving = async {
        while let Some(chunk) = output.recv().await {
            if chunk.stream == Stream::Stdout && to.write_all(&chunk.bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    let running = async {
        tokio::select! {
            () = sending => {}
            () = receiving => {}
        }
    };
    tokio::pin!(running);
    let mut exec = std::pin::pin!(link.exec(exec));
    tokio::select! {
        () = &mut running => Ok(()),
        result = &mut exec => {
            // Its last output may still be queued.
            running.await;
            result.map(drop)
        }
    }
}
