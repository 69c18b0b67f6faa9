//! One run for the command line: one message per line.

use coracle_sandbox::protocol::WorkerRequest;
use coracle_sandbox::{Code, Failure, Result};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::Worker;
use crate::run::run;
use crate::stop::StopSignal;

/// Runs one request to its end, and prints each message as a line.
///
/// The failure of the run, as in its `result`.
/// Why the run failed, as in its `result`.
pub async fn once(
    worker: &Worker,
    request: &WorkerRequest,
    mut to: impl AsyncWrite + Unpin,
    quit: CancellationToken,
) -> Result<()> {
    let stop = StopSignal::default();
    let (sender, mut messages) = mpsc::channel(16);
    let writing = async {
        while let Some(message) = messages.recv().await {
            let mut line = serde_json::to_vec(&message).map_err(Failure::internal)?;
            line.push(b'\n');
            let gone = |err| Failure::new(Code::WorkerDied, format!("The reader of the messages is gone: {err}."));
            to.write_all(&line).await.map_err(gone)?;
            to.flush().await.map_err(gone)?;
        }
        Ok(())
    };
    let quitting = async {
        quit.cancelled().await;
        stop.fire(Code::Cancelled, "Cancelled.");
        std::future::pending::<()>().await;
    };
    let all = async { tokio::join!(run(worker, request, sender, &stop), writing) };
    tokio::select! {
        (ran, written) = all => ran.and(written),
        () = quitting => Ok(()),
    }
}
