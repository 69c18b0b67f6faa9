//! Ports of a sandbox on the host: each connection is a program of the guest that connects to the port inside.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::{Command, ContainerPath, Exec, Input};
use tokio::io::{AsyncWriteExt as _, copy, duplex};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Sandbox;
use super::sandbox_proxy::SandboxProxy;
use crate::provider::Forward;
use crate::{Code, Failure, Result};

/// What connects inside.
const GUEST: &str = "/.coracle/guest";

/// Connections at once; more wait to be accepted.
const MOST: usize = 64;

/// Between two tries to accept when there are no descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Pieces and bytes under way on a connection.
const WAITING: usize = 16;
const BUFFER: usize = 64 << 10;

/// What a failed try prints.
const KEPT: usize = 4 << 10;

/// Listens on a port of 127.0.0.1, a free one for 0, until the answer is dropped. The sandbox is made ready for each
/// connection: one that was stopped meanwhile is started.
pub(super) async fn forward(sandbox: Sandbox, proxy: Arc<SandboxProxy>, port: u16, at: u16) -> Result<Forward> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, at)).await.map_err(|err| {
        let failure = Failure::new(Code::InvalidInput, format!("127.0.0.1:{at} cannot be listened at: {err}."));
        failure.detail("port", at)
    })?;
    let own = listener.local_addr().map_err(Failure::internal)?.port();
    let over = CancellationToken::new();
    let listening = listen(listener, over.clone(), move |stream| {
        let (sandbox, proxy) = (sandbox.clone(), proxy.clone());
        async move {
            if let Err(failure) = lead(&sandbox, &proxy, stream, port).await {
                tracing::warn!(port, %failure, "a connection to a port of a sandbox failed");
            }
        }
    });
    tokio::spawn(listening);
    Ok(Forward { port: own, hold: Box::new(over.drop_guard()) })
}

async fn listen<F>(listener: TcpListener, over: CancellationToken, lead: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (mut connections, places) = (JoinSet::new(), Arc::new(Semaphore::new(MOST)));
    let accepting = async {
        while let Ok(place) = places.clone().acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let leading = lead(stream);
                    connections.spawn(async move {
                        leading.await;
                        drop(place);
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
    // Connections end with the set, and their programs with them.
    over.run_until_cancelled(accepting).await;
}

async fn lead(sandbox: &Sandbox, proxy: &Arc<SandboxProxy>, stream: TcpStream, port: u16) -> Result<()> {
    let _open = proxy.open()?;
    let held = sandbox.ensure().await?;
    let (mut from, mut to) = stream.into_split();
    let (mut input, theirs) = duplex(BUFFER);
    let (live, mut output) = mpsc::channel(WAITING);
    let cancel = CancellationToken::new();
    let _ends = cancel.clone().drop_guard();
    let words = [GUEST.to_owned(), "pipe".to_owned(), port.to_string()];
    let exec = Exec {
        bare: true,
        stdin: Some(Input::Stream(Box::new(theirs))),
        live: Some(live),
        cancel,
        keep_bytes: KEPT,
        // All of it is passed on here, so that nobody asks for it later.
        passes_on: Some(usize::MAX),
        ..Exec::new(Command::Argv(words.into()), sandbox.agent(), ContainerPath::root())
    };
    let sending = async {
        let _ = copy(&mut from, &mut input).await;
        drop(input);
        std::future::pending::<()>().await;
    };
    let receiving = async {
        while let Some(chunk) = output.recv().await {
            if chunk.stream == coracle_runtime::Stream::Stdout && to.write_all(&chunk.bytes).await.is_err() {
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
    let mut ended = std::pin::pin!(held.link.exec(exec));
    tokio::select! {
        () = &mut running => Ok(()),
        ended = &mut ended => {
            // What it printed last may still be on its way.
            running.await;
            ended.map(drop).map_err(Failure::internal)
        }
    }
}
